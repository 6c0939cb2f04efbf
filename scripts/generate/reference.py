"""Every value of the chart with type, default and meaning, from the schema: ``docs/values.md``, and the README in the
chart's package, which has no docs/ beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rankzero.fields import LARGEST_EXACT
from scripts.generate import files
from scripts.generate.comments import load_values
from scripts.generate.frame import Schema
from scripts.generate.schema import values_schema

HEAD = """# Values of the chart

<!-- Written by `python -m scripts.generate` from charts/rankzero/values.yaml and trainer/rankzero/config.py. -->

Unknown keys are refused, by `helm install` already. How values hang together is in [chart.md](chart.md).
"""

PACKAGE_HEAD = """# rankzero

<!-- Written by `python -m scripts.generate` from charts/rankzero/values.yaml and trainer/rankzero/config.py. -->

One release trains one experiment: multi-node PyTorch on Kubernetes or K3s, no operator of its own.

```bash
helm install mnist rankzero-{version}.tgz -f experiment.yaml
```

```yaml
# experiment.yaml: the least that a release needs
image:
  repository: registry.example.com/rankzero/trainer
  tag: 0.1.0-g1a2b3c4
nodes: 2
resources:
  gpus: 8
launch:
  script: /opt/rankzero/examples/mnist.py
```

The image is built with `make build-image` from the repository that this chart comes from; it holds the launcher, which
is PID 1 of every pod. Helm prints how to follow the run, resume it and remove it. Checkpoints outlive the release.

Unknown keys are refused by the schema, contradictions by one sentence each, before anything is made.
"""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    key: str
    kind: str
    default: str
    meaning: str


def render() -> str:
    """The text of ``docs/values.md``."""
    return "\n".join([HEAD, *_tables()])


def render_package() -> str:
    """The text of the chart's own README."""
    version = load_values(files.CHART / "Chart.yaml")["version"]
    return "\n".join([PACKAGE_HEAD.format(version=version), *_tables()])


def _tables() -> list[str]:
    schema = values_schema()
    defaults = load_values(files.VALUES)
    parts: list[str] = []
    single: list[Row] = []
    for key, part in schema["properties"].items():
        rows = list(_rows(key, part, defaults.get(key)))
        if len(rows) == 1:
            single += rows
        else:
            intro = part.get("description", "") if part["type"] == "object" else ""
            parts.append(_table(key, intro, rows))
    return [_table("Top level", "", single), *parts]


def _rows(path: str, schema: Schema, default: Any) -> Iterator[Row]:
    """The rows of a value and of those below it; list items appear as ``datasets[].name``."""
    if "properties" in schema:
        for key, part in schema["properties"].items():
            below = default.get(key) if isinstance(default, dict) else None
            yield from _rows(f"{path}.{key}", part, part.get("default") if below is None else below)
        return
    yield Row(path, _kind(schema), "" if default is None else f"`{json.dumps(default)}`", schema["description"])
    if "properties" in schema.get("items", {}):
        for key, part in schema["items"]["properties"].items():
            yield from _rows(f"{path}[].{key}", part, None)


def _kind(schema: Schema) -> str:
    """Type and bounds in a few words."""
    if "enum" in schema:
        return " \\| ".join(
            f"`{value if isinstance(value, str) and value else json.dumps(value)}`" for value in schema["enum"]
        )
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    words = " or ".join(names)
    bounds = [
        f"{sign} {schema[word]}"
        for word, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if schema.get(word, LARGEST_EXACT) != LARGEST_EXACT
    ]
    return ", ".join([words, *bounds])


def _table(title: str, intro: str, rows: list[Row]) -> str:
    lines = [f"## {title}", ""]
    if intro:
        lines += [intro, ""]
    lines += ["| Key | Type | Default | Meaning |", "|---|---|---|---|"]
    lines += [f"| `{row.key}` | {row.kind} | {row.default} | {row.meaning} |" for row in rows]
    return "\n".join([*lines, ""])
