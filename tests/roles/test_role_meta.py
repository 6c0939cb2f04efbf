"""What the roles say that they need where Ansible runs."""

from __future__ import annotations

import tomllib

from scripts.cache import REPO
from tests.roles.templating import load


def test_every_role_and_the_guide_ask_for_the_oldest_ansible_that_they_are_run_with() -> None:
    groups = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    (pinned,) = (name.partition(">=")[2] for name in groups["ansible"] if name.startswith("ansible-core"))
    oldest = ".".join(pinned.split(".")[:2])

    asked = {
        file.parents[1].name: load(file)["galaxy_info"]["min_ansible_version"]
        for file in REPO.glob("roles/*/meta/main.yml")
    }

    assert asked == dict.fromkeys(asked, oldest)
    assert f"Python 3.11 and ansible-core {oldest}, or newer" in (REPO / "docs/nodes.md").read_text(encoding="utf-8")
