"""The release that a drill disturbs: in a namespace of its own, and gone afterwards whatever happened."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts import command
from scripts.cache import REPO
from scripts.drill.ground import Ground
from scripts.image.reference import as_values

NAME = "drill"
RUN_ID = "main"
CLAIM = f"{NAME}-checkpoints"
VALUES = "experiments/drill.yaml"
CHART = "charts/rankzero"
PROGRAM = Path(__file__).with_name("in_pod.py")
IN_POD = "exec --stdin {pod} --container trainer -- python -"
KUBECTL_WITHIN = 120.0
"""Seconds for one kubectl command, so that a node that is gone does not hold a drill for ever."""


class Release:
    """``helm`` and ``kubectl`` for one drill."""

    def __init__(self, ground: Ground, drill: str, values: Mapping[str, Any]) -> None:
        self.ground = ground
        self.namespace = f"drill-{drill}-{uuid.uuid4().hex[:4]}"
        self._values = values

    def twin(self) -> Release:
        """Another release with the same name and values, in another namespace."""
        return Release(self.ground, "twin", self._values)

    def create_namespace(self) -> None:
        """Raises :class:`CommandError`.

        Pods on the network of the nodes are refused by every pod security standard except the privileged one.
        """
        hosts = self._values.get("network", {}).get("hostNetwork", False)
        labels = {"pod-security.kubernetes.io/enforce": "privileged"} if hosts else {}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}}
        self.kubectl("create", "--filename", "-", stdin=json.dumps(made))

    def install(self) -> None:
        """``helm install``. Raises :class:`CommandError`."""
        self._helm("install")

    def upgrade(self, *settings: str) -> None:
        """``helm upgrade`` with ``KEY=JSON`` settings on top."""
        self._helm("upgrade", *(word for setting in settings for word in ("--set-json", setting)))

    def remove(self) -> None:
        """Remove the namespace and with it the release and its claim; pods of nodes that are gone do not hold it up."""
        self.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the drill's namespace and return what it prints. Raises :class:`CommandError`."""
        return command.run(
            [self.ground.kubectl, *self._where(), "--namespace", self.namespace, *words],
            stdin=stdin,
            timeout=KUBECTL_WITHIN,
        )

    def in_pod(self, pod: str, *words: str) -> str:
        """Run ``in_pod.py`` in a pod's trainer container."""
        return self.kubectl(*IN_POD.format(pod=pod).split(), *words, stdin=PROGRAM.read_text(encoding="utf-8")).strip()

    @contextmanager
    def meanwhile_in_pod(self, pod: str, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The same beside the body; ``stdout`` is to be read, and what has not ended by then is killed."""
        kubectl = [str(self.ground.kubectl), *self._where(), "--namespace", self.namespace]
        with (
            PROGRAM.open(encoding="utf-8") as program,
            subprocess.Popen(
                [*kubectl, *IN_POD.format(pod=pod).split(), *words],
                stdin=program,
                stdout=subprocess.PIPE,
                text=True,
            ) as running,
        ):
            try:
                yield running
            finally:
                running.kill()

    def _helm(self, verb: str, *options: str) -> None:
        files = [VALUES, *self.ground.values, "-"]
        command.run(
            [
                *(self.ground.helm, verb, NAME, CHART, "--namespace", self.namespace),
                *(word for file in files for word in ("--values", file)),
                *options,
                *self._where(),
            ],
            cwd=REPO,
            stdin=json.dumps({"image": as_values(self.ground.image), **self._values}),
        )

    def _where(self) -> list[str]:
        return ["--kubeconfig", self.ground.kubeconfig] if self.ground.kubeconfig else []
