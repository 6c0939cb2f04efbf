"""Each role describes its arguments once, and what is generated or repeated from there agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.generate import roles
from tests.roles.templating import load

ROLES = roles.roles()
EVERY_ROLE = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)


def test_there_are_roles_to_look_at() -> None:
    assert {"container_runtime", "host_tuning"} <= {role.name for role in ROLES}


@EVERY_ROLE
def test_defaults_equal_those_of_the_argument_specs(role: Path) -> None:
    points = load(role / roles.SPECS)["argument_specs"].values()
    defaults = [(name, option["default"]) for point in points for name, option in point["options"].items()]

    assert sorted(load(role / "defaults/main.yml").items()) == sorted(dict(defaults).items())
    assert all(dict(defaults)[name] == default for name, default in defaults), "entry points disagree"


@EVERY_ROLE
def test_the_readme_is_what_the_generator_writes(role: Path) -> None:
    assert roles.readme(role).read_text(encoding="utf-8") == roles.render(role), "run `python -m scripts.generate`"


@EVERY_ROLE
def test_public_variables_carry_the_role_s_name_and_internal_ones_two_underscores(role: Path) -> None:
    internal = [name for file in sorted((role / "vars").rglob("*.yml")) for name in load(file)]

    assert all(name.startswith(f"{role.name}_") for name in load(role / "defaults/main.yml"))
    assert internal
    assert all(name.startswith(f"__{role.name}_") for name in internal)
