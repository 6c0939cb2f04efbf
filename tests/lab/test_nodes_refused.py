"""Nodes on which nothing can be changed: each is named with what to do, and the others are prepared all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.cache import REPO
from scripts.lab import spares
from scripts.lab.host import podman_env
from scripts.lab.podman import execute
from scripts.stages import Stages
from tests.roles.running import Run, ansible_playbook

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]


@pytest.fixture(scope="module")
def names() -> Iterator[list[str]]:
    """A machine that is fine, one whose user may not run sudo, and one that cannot write to /etc."""
    with spares.machines(3, Stages()) as found:
        _, unprivileged, read_only = found
        execute(unprivileged, "useradd", "--create-home", "--shell", "/bin/bash", "deploy")
        execute(unprivileged, "passwd", "--delete", "deploy")
        execute(read_only, "mount", "--bind", "/etc", "/etc")
        execute(read_only, "mount", "--options", "remount,bind,ro", "/etc")
        yield found


def site(folder: Path, names: list[str]) -> Run:
    """Run site.yml on the three and on one that is not there."""
    document = yaml.safe_load(
        spares.inventory(names, "", {"container_runtime_limit_beyond_host": "lower", "cpu_manager_policy": "none"})
    )
    hosts = document["training_nodes"]["hosts"]
    hosts[names[1]] = {"ansible_user": "deploy"}
    hosts["gone"] = {}
    (folder / "inventory.yml").write_text(yaml.safe_dump(document))
    return ansible_playbook(REPO / "playbooks/site.yml", folder / "inventory.yml", env=podman_env())


def test_each_node_that_refuses_is_named_with_its_fix_and_nothing_on_it_is_changed(
    names: list[str], tmp_path: Path
) -> None:
    fine, unprivileged, read_only = names

    done = site(tmp_path, names)

    assert done.status != 0
    assert done.summary.keys() == {*names, "gone"}
    assert done.summary["gone"].startswith("unreachable")
    assert "Fix: check ansible_host, ansible_user" in done.summary["gone"]
    assert done.summary[unprivileged].startswith("failed")
    assert "set ansible_become_password or run with --ask-become-pass" in done.summary[unprivileged]
    assert done.summary[read_only].startswith("failed")
    assert "file system that is read-only" in done.summary[read_only]
    assert "Mount it for writing" in done.summary[read_only]
    assert done.summary[fine].startswith(("done", "waiting"))
    for node in (unprivileged, read_only):
        assert "absent" in execute(node, "sh", "-c", "test -e /var/lib/rankzero || echo absent")
