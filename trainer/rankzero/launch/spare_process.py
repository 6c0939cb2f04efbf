"""The warm spare: a process that has imported what workers need, and becomes them by fork.

    python -m rankzero.launch.spare_process SOCKET_FD

Importing torch and building the first DDP model costs seconds; a fork costs milliseconds. The spare imports
library modules only, never the user's, starts no thread and touches no GPU: it checks all three before each
fork and refuses otherwise, so that the launcher starts the worker plainly.

It speaks over one Unix socket of whole packets. A request is a small packet with its number, which the answer
repeats; its content comes in a file descriptor beside it, as does a worker's standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

PACKET = 64 * 1024
MOST_REPORTED = 20
PR_SET_PDEATHSIG = 1
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class Spare:
    """The loop of the process: import, fork, report ends."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.children: set[int] = set()
        # Ends of children arrive as bytes on this pipe, so that one wait sees both them and requests.
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The launcher decides when workers end. Blocked, not ignored: one that is stopped in the moment of its fork
        # must hear of it once it is a worker.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)

    def serve(self) -> Callable[[], None] | None:
        """Answer requests until the launcher closes the socket; in a forked worker, return what it has to run."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        poll.register(self.wake_read, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self.wake_read in ready:
                os.read(self.wake_read, 4096)
                self._report_ends()
            if self.connection.fileno() in ready:
                packet, descriptors, _, _ = socket.recv_fds(self.connection, PACKET, 2)
                if not packet:
                    return None
                worker = self._handle(json.loads(packet), descriptors)
                if worker is not None:
                    return worker

    def _handle(self, request: dict[str, Any], descriptors: list[int]) -> Callable[[], None] | None:
        content, *outputs = descriptors
        with os.fdopen(content) as file:
            wanted = json.load(file)
        number = request["request"]
        if "preload" in wanted:
            self._answer({"answer": number, "failed": preload(wanted["preload"]), **facts()})
            return None
        output = outputs[0]
        if reason := unsafe():
            os.close(output)
            self._answer({"answer": number, "refused": reason})
            return None
        gc.freeze()  # what is there now is shared by all workers: keep the collector from touching its pages
        pid = os.fork()
        if pid == 0:
            for descriptor in (self.connection.detach(), self.wake_read, self.wake_write):
                os.close(descriptor)
            become_worker(wanted, output)
            return lambda: run_script(wanted["argv"])
        os.close(output)
        self.children.add(pid)
        self._answer({"answer": number, "started": pid})
        return None

    def _report_ends(self) -> None:
        for pid in list(self.children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.children.discard(pid)
                self._answer({"ended": pid, "status": os.waitstatus_to_exitcode(status)})

    def _answer(self, document: dict[str, Any]) -> None:
        self.connection.send(json.dumps(document).encode())


def preload(names: list[str]) -> dict[str, str]:
    """Import modules; returns why for the first that could not be imported."""
    failed: dict[str, str] = {}
    gc.disable()  # all that an import makes stays: looking for garbage in it is a quarter of the work
    try:
        for name in names:
            try:
                importlib.import_module(name)
            except BaseException as error:  # any library code may run here, and none may end the spare
                if len(failed) < MOST_REPORTED:  # an answer is one packet
                    failed[name[:200]] = f"{type(error).__name__}: {error}"[:200]
    finally:
        gc.enable()
    return failed


def facts() -> dict[str, Any]:
    """What the launcher shows: memory in bytes, and whether a fork would be refused."""
    return {"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "unsafe": unsafe()}


def unsafe() -> str:
    """Why this process must not fork now; empty where it may."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        return f"an imported module has started {threads - 1} threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "an imported module has initialised CUDA"
    return ""


def become_worker(wanted: dict[str, Any], output: int) -> None:
    """Make the forked process what a freshly started one would be."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
    for descriptor in (null, output):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(wanted["env"])
    os.chdir(wanted["cwd"])
    reseed()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def reseed() -> None:
    """Forks of one process would draw the same numbers where fresh processes draw different ones."""
    import random

    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def run_script(argv: list[str]) -> None:
    """Run a script as ``python script args`` does: as ``__main__``, its folder first on the path."""
    script = argv[0]
    sys.argv = list(argv)
    sys.path[0] = str(Path(script).resolve().parent)
    module = types.ModuleType("__main__")
    loader = SourceFileLoader("__main__", script)
    module.__dict__.update(__file__=script, __loader__=loader, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = module
    log_imports(os.environ.get("RANKZERO_IMPORTS", ""))
    try:
        exec(loader.source_to_code(loader.get_data(script), script), module.__dict__)  # noqa: S102 -- the user's script
    except SystemExit:
        raise
    except BaseException as error:
        report(error, module)
        sys.exit(1)


def report(error: BaseException, module: types.ModuleType) -> None:
    """Print the traceback as the interpreter would: from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is not module.__dict__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def log_imports(path: str) -> None:
    """Append the names of modules that the script imports to ``path``, for the next preload."""
    if not path:
        return
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import":
            with contextlib.suppress(OSError):  # a full disk must not keep the script from importing
                os.write(file, f"{arguments[0]}\n".encode())

    sys.addaudithook(note)


def main() -> None:
    """Serve on the inherited socket; a forked worker goes on with its script."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    worker = Spare(connection).serve()
    if worker is None:
        return
    worker()


if __name__ == "__main__":
    main()
