"""What a run left behind in its state directory, fetched from the checkpoint volume through a pod that mounts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankzero import contract
from rankzero.errors import RankzeroError
from rankzero.files import read_json
from scripts.drill.release import CLAIM, NAME, RUN_ID, Release

READER = "reader"
READY_WITHIN = "60s"


@dataclass(frozen=True)
class Evidence:
    """The records of one run, as the launcher and the script wrote them."""

    attempts: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Evidence:
        """Read a state directory; what is missing is empty."""
        attempts = [json.loads(path.read_text()) for path in sorted((folder / contract.ATTEMPTS_DIR).glob("*.json"))]
        return cls(
            attempts, list(_lines(folder / contract.METRICS_FILE)), read_json(folder / contract.OUTCOME_FILE) or {}
        )

    @property
    def result(self) -> dict[str, float]:
        """What the script reported: final loss, weights' hash, steps."""
        found: dict[str, float] = self.outcome.get("result", {})
        return found

    def steps(self, attempt: int) -> list[int]:
        """Steps of one attempt, as they were logged."""
        return [line["step"] for line in self.metrics if line["attempt"] == attempt]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except ValueError:  # cut off by the loss of its writer
            continue


def fetch(release: Release, folder: Path) -> Evidence:
    """Copy the records to ``folder`` and read them. Needs no pod of the run: by then they are gone.

    Raises :class:`CommandError`.
    """
    workload = json.loads(release.kubectl("get", "statefulset", NAME, "--output", "json"))
    release.kubectl("apply", "--filename", "-", stdin=json.dumps(_reader(workload["spec"]["template"]["spec"])))
    release.kubectl("wait", "--for=condition=Ready", f"pod/{READER}", f"--timeout={READY_WITHIN}")
    for name, text in json.loads(release.in_pod(READER, "dump")).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Evidence.read(folder)


def rescue(release: Release, folder: Path) -> None:
    """Keep what can be had of a run that did not come to its end, before its namespace is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    every = f"--selector={contract.LABEL_INSTANCE}={NAME}"
    questions = {
        "pods.yaml": ("get", "pods", "--output", "yaml"),
        "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
        "logs.txt": ("logs", every, "--prefix", "--timestamps", "--tail=-1"),
        "logs-previous.txt": ("logs", every, "--prefix", "--timestamps", "--tail=-1", "--previous"),
    }
    for name, words in questions.items():
        with suppress(RankzeroError):  # the error that brought us here is the one to be read
            (folder / name).write_text(release.kubectl(*words), encoding="utf-8", errors="replace")
    with suppress(RankzeroError, ValueError, KeyError):  # the last two: an answer that is cut off
        fetch(release, folder)


def _reader(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod that does nothing beside the checkpoint volume; ``pod`` is the run's own, which this cluster lets run."""
    environment = {
        contract.ENV_STATE_ROOT: contract.STATE_ROOT,
        contract.ENV_RUN_NAME: NAME,
        contract.ENV_RUN_ID: RUN_ID,
    }
    container = {
        "name": contract.CONTAINER_NAME,
        "image": pod["containers"][0]["image"],
        "command": ["sleep", "infinity"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [{"name": "checkpoints", "mountPath": contract.STATE_ROOT}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    same = ("imagePullSecrets", "securityContext", "nodeSelector", "tolerations", "affinity", "priorityClassName")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": READER},
        "spec": {
            **{key: pod[key] for key in same if key in pod},
            "containers": [container],
            "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}}],
            "terminationGracePeriodSeconds": 0,
        },
    }
