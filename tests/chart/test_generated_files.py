"""The generated files follow from their sources, and the schema is closed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rankzero.errors import ConfigError
from scripts.cache import REPO
from scripts.generate import defaults, files, golden, measured, reference, refusals, schema
from scripts.generate.comments import load_values, read_comments


def schema_on_disk() -> dict[str, Any]:
    """values.schema.json as Helm reads it."""
    loaded: dict[str, Any] = json.loads(files.SCHEMA.read_text(encoding="utf-8"))
    return loaded


def test_generated_files_are_up_to_date() -> None:
    """`python -m scripts.generate` writes them."""
    assert files.SCHEMA.read_text(encoding="utf-8") == schema.render()
    assert files.DEFAULTS.read_text(encoding="utf-8") == defaults.render()
    assert files.REFERENCE.read_text(encoding="utf-8") == reference.render()
    assert files.REFUSALS.read_text(encoding="utf-8") == refusals.render()
    assert files.PACKAGE_README.read_text(encoding="utf-8") == reference.render_package()
    assert files.RECOVERY.read_text(encoding="utf-8") == measured.recovery()
    assert files.DRILLS.read_text(encoding="utf-8") == measured.drills()
    assert files.FRONT_PAGE.read_text(encoding="utf-8") == measured.front_page()
    assert files.NODES.read_text(encoding="utf-8") == measured.nodes()
    assert files.SCALE.read_text(encoding="utf-8") == measured.scale()


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(schema_on_disk())


@pytest.mark.parametrize("path", [files.VALUES, *golden.scenarios(), *sorted((REPO / "experiments").glob("*.yaml"))])
def test_values_files_fit_the_schema(path: Path) -> None:
    values = overlaid(load_values(files.VALUES), load_values(path))
    jsonschema.Draft202012Validator(schema_on_disk()).validate(values)


def overlaid(defaults: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Defaults and values as Helm puts them together before it asks the schema."""
    both = {
        key: overlaid(defaults[key], values[key])
        for key in defaults.keys() & values.keys()
        if isinstance(values[key], dict)
    }
    return {**defaults, **values, **both}


def mappings(part: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping that the schema describes key by key."""
    if "properties" in part:
        yield path, part
        for key, below in part["properties"].items():
            yield from mappings(below, f"{path}.{key}")
    if "items" in part:
        yield from mappings(part["items"], f"{path}[]")
    for name, below in part.get("$defs", {}).items():
        yield from mappings(below, name)


def test_no_mapping_takes_unknown_keys() -> None:
    found = dict(mappings(schema_on_disk(), ""))
    assert {"", ".checkpoints", ".datasets[].nfs", "V1PodAffinity"} <= found.keys()
    assert [path for path, part in found.items() if part.get("additionalProperties") is not False] == []


def test_the_schema_requires_every_key_of_the_values_and_tells_its_default() -> None:
    """Helm fills in what is left out; what is still missing was left blank."""

    def compare(part: dict[str, Any], values: dict[str, Any]) -> None:
        assert part["required"] == list(values)
        for key, value in values.items():
            if "required" in part["properties"][key]:
                compare(part["properties"][key], value)
            else:
                assert part["properties"][key]["default"] == value

    compare(schema_on_disk(), load_values(files.VALUES))


def test_no_default_is_null() -> None:
    def nulls(value: object, path: str) -> Iterator[str]:
        if value is None:
            yield path
        elif isinstance(value, dict):
            for key, below in value.items():
                yield from nulls(below, f"{path}.{key}")

    assert list(nulls(load_values(files.VALUES), "")) == []


def test_a_comment_documents_the_key_right_below_it(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(
        "# a heading\n\nimage:\n  # -- First line,\n  # second line.\n  tag: x\n  # no sentence\n  digest: y\n",
        encoding="utf-8",
    )
    assert read_comments(path) == {"image.tag": "First line, second line."}


def test_a_value_without_a_sentence_stops_the_generator() -> None:
    part = {"properties": {"nodes": {"type": "integer"}}}
    with pytest.raises(ConfigError, match="nodes has no description"):
        schema.describe(part, {"nodes": 1}, {}, "")


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((files.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
