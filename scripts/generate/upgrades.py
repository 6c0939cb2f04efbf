"""The table in ``docs/upgrades.md``: changes that people make, each rendered and judged as ``rankzero diff`` does."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from rankzero.cluster.effects import Change, Effect, effects
from scripts.generate import files, golden, helm
from scripts.generate.measured import replaced, table

SCENARIO = files.SCENARIOS / "two-nodes-cpu-values.yaml"


@dataclass(frozen=True)
class Example:
    """``change`` is made to a release of :data:`SCENARIO` with ``base`` on top; both by key path."""

    change: Mapping[str, Any]
    base: Mapping[str, Any] = field(default_factory=dict)


QUEUED = {"scheduling.kueue.queue": "train"}

EXAMPLES = (
    Example({"train.epochs": 20}),
    Example({"launch.heartbeatTimeout": 30}),
    Example({"image.tag": "0.2.0"}),
    Example({"nodes": 3}),
    Example({"resources.memory": "8Gi"}),
    Example({"scheduling.priorityClassName": "high"}),
    Example({"run.id": "second"}),
    Example({"podLabels": {"team": "vision"}}),
    Example({"terminationGracePeriodSeconds": 120}),
    Example({"network.hostNetwork": True}),
    Example({"network.fabric.preset": "ethernet"}),
    Example({"code.files": {"a.py": "2"}}, {"code.files": {"a.py": "1"}, "launch.script": "/workspace/a.py"}),
    Example({"networkPolicy.enabled": False}),
    Example({"podDisruptionBudget.maxUnavailable": 0}),
    Example({"rbac.create": False}),
    Example({"checkpoints.size": "20Gi"}, {"checkpoints.size": "10Gi"}),
    Example({"checkpoints.size": "5Gi"}, {"checkpoints.size": "10Gi"}),
    Example({"checkpoints.storageClass": "other"}),
    Example({"nodes": 2}, {"nodes": 1}),
    Example({"nodes": 1}),
    Example({"nodes": 1, "checkpoints.accessMode": "ReadWriteMany"}),
    Example({"checkpoints.keep": False}),
    Example({"checkpoints.existingClaim": "mine"}),
    Example({"checkpoints.existingClaim": "mine"}, {"checkpoints.keep": False}),
    Example({"nodes": 3}, {"scheduling.gang": "native"}),
    Example({"scheduling.priorityClassName": "system-cluster-critical"}, {"scheduling.gang": "native"}),
    *(Example(change, QUEUED) for change in ({"nodes": 3}, {"resources.memory": "8Gi"}, {"network.hostNetwork": True})),
    Example({"scheduling.nodeSelector": {"example.com/pool": "a"}}, QUEUED),
    Example({"scheduling.kueue.queue": ""}, QUEUED),
    Example({"train.epochs": 20}, QUEUED),
    Example({"workload.kind": "Job"}),
    *(Example({"train.epochs": 20}, {"workload.kind": kind}) for kind in ("Job", "PyTorchJob", "TrainJob")),
    Example({"nodes": 3}, {"workload.kind": "TrainJob"}),
    Example({"workload.ttlSecondsAfterFinished": 600}, {"workload.kind": "Job"}),
    Example({"image.tag": "0.2.0"}, {"workload.kind": "Pod", "nodes": 1}),
    Example({"train.epochs": 20}, {"workload.kind": "Pod", "nodes": 1}),
)


def render() -> str:
    """The text of ``docs/upgrades.md``. Needs helm."""
    by_outcome: dict[tuple[str, str], list[str]] = {}
    for example in EXAMPLES:
        by_outcome.setdefault(_outcome(judged(example)), []).append(_settings(example))
    rows = [["change", "the upgrade", "why, and the way round"]]
    rows += [["<br>".join(settings), effect, why] for (effect, why), settings in by_outcome.items()]
    return replaced(files.UPGRADES, "upgrades", table(rows), source="scripts/generate/upgrades.py")


def judged(example: Example) -> list[Change]:
    """What an upgrade with the example's change does."""
    return effects(rendered(example.base), rendered({**example.base, **example.change}))


def rendered(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of the scenario with settings on top."""
    words = tuple(word for key, value in settings.items() for word in ("--set-json", f"{key}={json.dumps(value)}"))
    return [found for found in yaml.safe_load_all(_manifest(words)) if found]


@functools.cache
def _manifest(words: tuple[str, ...]) -> str:
    """Most examples change the same release."""
    return helm.template(golden.RELEASE, SCENARIO, words)


def _outcome(changes: list[Change]) -> tuple[str, str]:
    """Effect and reason. That a pod template changes is the reason of every restart, and not told."""
    worst = changes[0].effect
    by_advice: dict[str, list[str]] = {}
    for one in changes:
        if one.advice and (one.effect is not Effect.NONE or one.target.startswith("PersistentVolumeClaim")):
            by_advice.setdefault(one.advice, []).append(one.target)
    effect = f"**{worst}**" if worst in {Effect.LOSS, Effect.REFUSED, Effect.IGNORED} else str(worst)
    return effect, "; ".join(f"{', '.join(targets)}: {advice}" for advice, targets in by_advice.items())


def _settings(example: Example) -> str:
    changes = ", ".join(_setting(key, value, example.base.get(key)) for key, value in example.change.items())
    others = [f"`{key}: {json.dumps(value)}`" for key, value in example.base.items() if key not in example.change]
    return f"{changes} where {' and '.join(others)}" if others else changes


def _setting(key: str, value: Any, before: Any) -> str:
    text = f"`{key}: {json.dumps(value)}`"
    return text if before is None else f"{text}, before {json.dumps(before)}"
