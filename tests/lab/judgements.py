"""Whether a real API agrees with what the guide says of upgrades, without an upgrade."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

from rankzero.cluster.effects import Effect
from scripts.generate import upgrades
from scripts.lab import surroundings
from tests.lab.conftest import Namespace

NOWHERE = {"scheduling.nodeSelector": {"example.com/no-such": "node"}}
GROWTH = {"checkpoints.size": "20Gi"}
"""What becomes of it is for the storage class to say, and the lab's claims cannot grow."""


def hold(namespace: Namespace, base: Mapping[str, Any]) -> None:
    """Assert that the API refuses what the guide's examples on ``base`` say is refused, and nothing else.

    No pod is ever started: no node has the label that they want.
    """
    examples = [one for one in upgrades.EXAMPLES if one.base == base and one.change != GROWTH]
    assert examples
    assert _apply(namespace, {**base, **NOWHERE}) == ""
    for example in examples:
        is_refused = any(change.effect is Effect.REFUSED for change in upgrades.judged(example))
        refusal = _refusal(namespace, {**base, **NOWHERE, **example.change})
        assert is_refused == bool(refusal), (example.change, refusal)


def _apply(namespace: Namespace, settings: Mapping[str, Any], *options: str) -> str:
    """Server-side, as Helm 4 does it; returns why the API refuses, empty where it does not."""
    rendered = upgrades.rendered(settings)
    objects = [item for one in rendered for item in (one["items"] if one["kind"] == "List" else [one])]
    for one in objects:
        one["metadata"]["namespace"] = namespace.name
    done = subprocess.run(
        ["kubectl", "apply", "--server-side", "--filename", "-", *options],
        env=surroundings.environment(),
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (done.stderr == ""), done.stderr
    return done.stderr


def _refusal(namespace: Namespace, settings: Mapping[str, Any]) -> str:
    """What the API would say to the objects, asked without changing any; empty where it would take them."""
    refusal = _apply(namespace, settings, "--dry-run=server")
    assert not refusal or re.search("[Ff]orbidden|immutable", refusal), refusal
    return refusal
