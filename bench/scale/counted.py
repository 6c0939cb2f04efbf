"""Counts what a program asks of the API: `kubectl proxy` stands between them and logs each request."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts import command
from scripts.lab import kube, programs

LOGGED = "Filter accepting"
READY = re.compile(r"Starting to serve on 127\.0\.0\.1:(\d+)")


class Counter:
    """``kubeconfig`` leads through the proxy."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.kubeconfig = kubeconfig
        self._log = log
        self._seen = 0

    def requests(self) -> int:
        """How many there were since the last time that this was asked."""
        now = self._log.read_text(encoding="utf-8").count(LOGGED)
        before, self._seen = self._seen, now
        return now - before


@contextmanager
def counter() -> Iterator[Counter]:
    """A proxy to the lab's API for as long as the body takes."""
    kubectl = programs.program("kubernetes", "kubectl")
    words = command.tied([kubectl, "--kubeconfig", kube.kubeconfig_path(), "proxy", "--port=0", "-v=3"])
    with tempfile.TemporaryDirectory() as name:
        log, kubeconfig = Path(name, "log"), Path(name, "kubeconfig")
        with (
            log.open("w", encoding="utf-8") as out,
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=out, text=True) as running,
        ):
            try:
                assert running.stdout is not None
                ready = READY.search(running.stdout.readline())
                if ready is None:
                    raise RuntimeError(f"kubectl proxy did not start: {log.read_text(encoding='utf-8')}")
                kubeconfig.write_text(json.dumps(_kubeconfig(int(ready[1]))), encoding="utf-8")
                yield Counter(kubeconfig, log)
            finally:
                running.terminate()


def _kubeconfig(port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        "current-context": "proxy",
    }
