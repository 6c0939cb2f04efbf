"""Launchers as processes of this machine, one a pod: real sockets, real signals, real files."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from rankzero import contract
from rankzero.launch.ports import free_port
from tests.waiting import PATIENCE, until

SCRIPT = Path(__file__).with_name("worker.py")
REPO = Path(__file__).resolve().parents[2]
LAUNCH = """
import importlib, json, sys
from rankzero import cli, contract
contract.TERMINATION_LOG = sys.argv.pop(1)
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, constant = name.rpartition(".")
    setattr(importlib.import_module(f"rankzero.launch.{module}"), constant, value)
cli.main()
"""
"""The command, with a termination log for each pod as its container has one, and limits as the test wants them."""


_given: set[int] = set()


def unused_port() -> int:
    """A free port that no other pod of these tests was given: it is bound only when its launcher starts."""
    while (port := free_port()) in _given:
        pass
    _given.add(port)
    return port


class Pod:
    """One launcher. ``delete`` is what a lost node does to it: everything in the container dies at once."""

    def __init__(self, group: PodGroup, node_rank: int) -> None:
        self.group = group
        self.node_rank = node_rank
        self.status_port = unused_port()
        self.log = group.folder / f"pod-{node_rank}.log"
        self.termination_log = group.folder / f"termination-{node_rank}"
        self.termination_log.touch()
        # Its containers share it. A short path, since a data loader's workers make sockets there.
        self._tmp = tempfile.TemporaryDirectory(prefix=f"pod-{node_rank}-", ignore_cleanup_errors=True)
        self.tmp = Path(self._tmp.name)
        self.cgroup: Path | None = None
        """Memory cgroup that the container's processes are started in."""
        config = group.folder / f"train-{node_rank}.yaml"
        launch = {**group.launch, "statusPort": self.status_port}
        config.write_text(yaml.safe_dump({"launch": launch}))
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self, *, uid: str = "", stdout: Any = None, **environment: str) -> Pod:
        """Start the launcher; ``uid`` is the pod's, new with every start unless given, ``stdout`` a descriptor."""
        self.starts += 1
        env = {
            **os.environ,
            "PYTHONPATH": str(REPO / "trainer"),
            contract.ENV_RUN_NAME: "test",
            contract.ENV_RUN_ID: "main",
            contract.ENV_NAMESPACE: "default",
            contract.ENV_RANK0_HOST: "localhost",
            contract.ENV_NODE_RANK: str(self.node_rank),
            contract.ENV_STATE_ROOT: str(self.group.folder / "volume"),
            contract.ENV_POD_NAME: f"test-{self.node_rank}",
            contract.ENV_POD_UID: self.group.uid(uid or f"uid-{self.node_rank}-{self.starts}"),
            contract.ENV_POD_IP: "127.0.0.1",
            "TMPDIR": str(self.tmp),
            **environment,
        }
        limits = json.dumps(self.group.constants)
        command = [sys.executable, "-c", LAUNCH, str(self.termination_log), limits]
        command += ["launch", "--config", str(self.config)]
        if self.cgroup is not None:
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.cgroup), *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.group.inside, *command],
                env=env,
                stdout=log if stdout is None else stdout,
                stderr=log,
            )
        return self

    def delete(self) -> None:
        """SIGKILL for the launcher and all that it started."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)  # or it would start a worker between the look and the kill
        # From the top: a launcher that still lives would tell its group what happens to its workers.
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self) -> None:
        """SIGTERM to PID 1, as the kubelet does."""
        assert self.process is not None
        self.process.terminate()

    def wait(self, timeout: float = PATIENCE) -> int:
        """The launcher's exit status."""
        assert self.process is not None
        return self.process.wait(timeout)

    def status(self) -> dict[str, Any]:
        """The launcher's /status page; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/status", timeout=5) as answer:
                document: dict[str, Any] = json.load(answer)
                return document
        except OSError:
            return {}

    @property
    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


class PodGroup:
    """All pods of one run."""

    def __init__(self, folder: Path, *, nodes: int, procs: int, args: list[str], **launch: Any) -> None:
        self.folder = folder
        (folder / "volume").mkdir()
        self.launch = {
            "script": str(SCRIPT),
            "args": [str(folder), *args],
            "warm": False,  # the spare has tests of its own, and would import torch for each of these
            "nodes": nodes,
            "procsPerNode": procs,
            "rendezvousPort": unused_port(),
            "rank0Timeout": 120,
            "stopTimeout": 5,
            **launch,
        }
        self.inside: list[str] = []
        """What starts a command in the network of the group; empty for that of this machine."""
        self.constants: dict[str, float] = {}
        """Other values of the launcher's constants, as ``roster.HELLO_TIMEOUT``."""
        self._token = secrets.token_hex(4)
        self.pods = [Pod(self, rank) for rank in range(nodes)]

    def uid(self, name: str) -> str:
        """A pod's uid: other tests have pods on this machine too, and share its memory."""
        return f"{name}-{self._token}"

    def start(self, *, uid: str = "") -> PodGroup:
        for pod in self.pods:
            pod.start(uid=uid)
        return self

    def stop(self) -> None:
        """Leave nothing behind, whatever the test did; fails where something outlived its pod."""
        for pod in self.pods:
            if pod.process is not None and pod.process.poll() is None:
                pod.delete()
        with contextlib.suppress(AssertionError):
            until(lambda: not self.processes(), timeout=20, what="the last ones end")
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"outlived their pods: {left}"

    def processes(self) -> dict[int, str]:
        """Command lines of all processes that name the group's folder, by pid."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if f"{self.folder} " in command or f"{self.folder}/" in command:
                found[int(path.parent.name)] = command
        return found

    @property
    def state_dir(self) -> Path:
        return self.folder / "volume/test/main"

    def attempt(self, number: int) -> dict[str, Any]:
        path = self.state_dir / contract.attempt_file(number)
        return json.loads(path.read_text()) if path.exists() else {}

    def outcome(self) -> dict[str, Any]:
        path = self.state_dir / contract.OUTCOME_FILE
        return json.loads(path.read_text()) if path.exists() else {}

    def workers(self, attempt: int) -> dict[int, dict[str, str]]:
        """What each rank of an attempt wrote down: its environment and pid."""
        files = (self.folder / f"attempt-{attempt}").glob("rank-*.json")
        return {int(path.stem.split("-")[1]): json.loads(path.read_text()) for path in files}

    def wait_for_workers(self, attempt: int, count: int, timeout: float = PATIENCE) -> dict[int, dict[str, str]]:
        """Wait until ``count`` workers of the attempt are up."""
        until(
            lambda: len(self.workers(attempt)) >= count, timeout=timeout, what=f"{count} workers of attempt {attempt}"
        )
        return self.workers(attempt)

    def release(self) -> None:
        """Let the workers that wait end with status 0."""
        (self.folder / "release").touch()


def descendants(pid: int) -> list[int]:
    """Children, grandchildren, ... of a process, from /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def alive(pid: int) -> bool:
    """True for a process that has not ended (a zombie has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
