"""What drills do inside a trainer container: ``python - COMMAND ARGUMENTS < in_pod.py``. Standard library only.

    signal worker|launcher|torchrun SIGNAL    to the process that trains, to PID 1, to torchrun
    damage-newest SIGNAL                      flip a bit in the newest checkpoint, then signal the worker
    newest                                    name the newest checkpoint
    fill | free                               the checkpoint volume
    crowd HOST PORT COUNT SECONDS             open connections that say nothing, or nonsense
    dump                                      the run's records as one JSON object, path to text

The pod's environment says which run it is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

SCRIPT = "drill.py"
FILLER = "drill-filler"
BLOCK = b"\0" * (1 << 16)
GARBAGE = (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b'{"kind": "Hello"', b"\x16\x03\x01\x02\x00\x01\x00", b"[]\n")


def main() -> None:
    """Do what the command line says."""
    command, *rest = sys.argv[1:]
    match command:
        case "signal":
            os.kill(process(rest[0]), signal.Signals[rest[1]])
        case "damage-newest":
            damage_newest()  # and no time for a newer one:
            os.kill(process("worker"), signal.Signals[rest[0]])
        case "newest":
            sys.stdout.write(newest().name)
        case "fill":
            fill()
        case "free":
            (root() / FILLER).unlink()
        case "crowd":
            crowd(rest[0], int(rest[1]), count=int(rest[2]), seconds=float(rest[3]))
        case "dump":
            dump()
        case _:
            sys.exit(f"unknown command {command}")


def process(name: str) -> int:
    """The pid of a worker, of torchrun, or of the launcher."""
    if name == "launcher":
        return 1
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(folder.name)], commands[int(folder.name)] = int(fields[1]), words

    def is_torchrun(pid: int) -> bool:
        return "torch.distributed.run" in commands[pid]

    def is_worker(pid: int) -> bool:  # started plainly, or forked from the spare, whose command line it keeps
        forked = "spare_process" in commands[pid] and "spare_process" in commands.get(parents[pid], "")
        return forked or (SCRIPT in commands[pid] and not is_torchrun(pid))

    found = [pid for pid in commands if (is_torchrun(pid) if name == "torchrun" else is_worker(pid))]
    if len(found) != 1:
        sys.exit(f"found {len(found)} processes that could be the {name}: {[commands[pid] for pid in found]}")
    return found[0]


def root() -> Path:
    """Mount path of the checkpoint volume."""
    return Path(os.environ["RANKZERO_STATE_ROOT"])


def state_dir() -> Path:
    """The run's state directory."""
    return root() / os.environ["RANKZERO_RUN_NAME"] / os.environ["RANKZERO_RUN_ID"]


def newest() -> Path:
    """The newest finished checkpoint."""
    return max(path for path in (state_dir() / "checkpoints").iterdir() if path.name.startswith("step-"))


def damage_newest() -> None:
    """Flip one bit in the middle of the newest checkpoint's largest file."""
    file = max(newest().iterdir(), key=lambda path: path.stat().st_size)
    with file.open("r+b") as content:
        content.seek(file.stat().st_size // 2)
        [byte] = content.read(1)
        content.seek(-1, os.SEEK_CUR)
        content.write(bytes([byte ^ 1]))


def fill() -> None:
    """Write until the volume refuses."""
    with (root() / FILLER).open("wb", buffering=0) as file:
        try:
            while file.write(BLOCK) == len(BLOCK):
                pass
        except OSError:
            return


def crowd(host: str, port: int, *, count: int, seconds: float) -> None:
    """Open ``count`` connections, send nonsense through every other one, and hold them for a while."""
    opened = []
    for number in range(count):
        connection = socket.create_connection((host, port), timeout=10)
        opened.append(connection)
        if number % 2:
            try:
                connection.sendall(GARBAGE[number // 2 % len(GARBAGE)])
            except OSError:  # dropped already
                continue
    time.sleep(seconds)
    for connection in opened:
        connection.close()


def dump() -> None:
    """Print every JSON file below the state directory."""
    files = [*state_dir().rglob("*.json"), *state_dir().rglob("*.jsonl")]
    json.dump({str(file.relative_to(state_dir())): file.read_text() for file in files}, sys.stdout)


main()
