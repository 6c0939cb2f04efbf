"""``values.schema.json``: the launcher's settings as a schema, in the frame of the other values."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, Literal

from rankzero.config import LaunchConfig, TrainConfig, camel
from rankzero.errors import ConfigError
from scripts.generate import api_types, files, storage
from scripts.generate.comments import load_values, read_comments
from scripts.generate.frame import FRAME, Schema, section

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SET_BY_CHART = ("nodes", "procs_per_node", "fabric")
"""Settings of the launcher that are no key below ``launch`` but values of their own."""

PLAIN_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def render() -> str:
    """The text of ``values.schema.json``."""
    return json.dumps(values_schema(), indent=2) + "\n"


def values_schema() -> Schema:
    """The whole schema, each key described, in the order of ``values.yaml``."""
    values = load_values(files.VALUES)
    parts = {
        **FRAME,
        **storage.FRAME,
        "nodes": whole_number_of_pods(),
        "procsPerNode": {**setting(LaunchConfig, "procs_per_node"), "minimum": 0},
        "launch": from_dataclass(LaunchConfig, skip=SET_BY_CHART),
        "train": from_dataclass(TrainConfig),
    }
    if parts.keys() != values.keys():
        raise ConfigError(
            f"values.yaml and the schema differ in {sorted(parts.keys() ^ values.keys())}",
            hint="add the key to both values.yaml and scripts/generate/frame.py, or storage.py there",
        )
    schema = section({key: parts[key] for key in values})
    describe(schema, values, read_comments(files.VALUES), "")
    schema["properties"]["global"] = {
        "type": "object",
        "description": "Helm adds this key where the chart is a dependency of another; it is not read.",
    }
    return {"$schema": DIALECT, "title": "Values of the rankzero chart", **schema, "$defs": api_types.definitions()}


def whole_number_of_pods() -> Schema:
    """``nodes`` without its lower bound: validate.yaml refuses 0 with a sentence that says what to do."""
    schema = setting(LaunchConfig, "nodes")
    del schema["minimum"]
    return schema


def describe(schema: Schema, values: dict[str, Any], comments: dict[str, str], prefix: str) -> None:
    """Put the comments and defaults of ``values.yaml`` on the keys it shows, and insist that each has a comment.

    These keys are required: Helm fills in those that are left out, and drops those that are left blank.
    """
    schema["required"] = list(values)
    for key, part in schema["properties"].items():
        path = f"{prefix}{key}"
        is_section = "properties" in part and bool(values.get(key))
        if is_section:
            describe(part, values[key], comments, f"{path}.")
        elif key in values:
            part["default"] = values[key]
        if path in comments:
            part["description"] = comments[path]
        elif not is_section and "description" not in part:
            raise ConfigError(f"{path} has no description", hint=f"write `# -- ...` above it in {files.VALUES.name}")


def from_dataclass(cls: type, skip: tuple[str, ...] = ()) -> Schema:
    """A closed mapping with one key a field; defaults and bounds are the field's own."""
    fields = [f.name for f in dataclasses.fields(cls) if f.name not in skip]
    return section({camel(name): setting(cls, name) for name in fields})


def setting(cls: type, name: str) -> Schema:
    """The schema of one field.

    An empty text passes even where the loader wants one, because ``values.yaml`` must be valid by itself;
    validate.yaml asks for it.
    """
    (found,) = (f for f in dataclasses.fields(cls) if f.name == name)
    kind = typing.get_type_hints(cls)[name]
    schema: Schema = {"description": found.metadata["doc"]}
    if dataclasses.is_dataclass(kind):
        return {**from_dataclass(typing.cast(type, kind)), **schema}
    schema |= json_type(kind)
    bounds = {"minimum": "minimum", "above": "exclusiveMinimum", "maximum": "maximum"}
    schema |= {word: found.metadata[bound] for bound, word in bounds.items() if found.metadata.get(bound) is not None}
    if found.default is not dataclasses.MISSING:
        schema["default"] = list(found.default) if isinstance(found.default, tuple) else found.default
    return schema


def json_type(kind: Any) -> Schema:
    """JSON Schema of a field's Python type."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(typing.get_args(kind))}
    if origin is tuple:
        return {"type": "array", "items": json_type(typing.get_args(kind)[0])}
    return {"type": PLAIN_TYPES[kind]}
