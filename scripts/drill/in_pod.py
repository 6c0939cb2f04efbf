"""What drills do inside a trainer container: ``python - COMMAND ARGUMENTS < in_pod.py``. Standard library only.

    signal worker|launcher|torchrun SIGNAL    to the process that trains, to PID 1, to torchrun; prints when
    damage-newest SIGNAL                      flip a bit in the newest checkpoint, then signal the worker
    kill-in-save                              SIGKILL to the worker as soon as a save is being written; prints its step
    newest                                    name the newest checkpoint
    fill | free                               the checkpoint volume
    crowd HOST PORT COUNT SECONDS             keep up connections that say nothing, half a line, or nonsense
    dump                                      the run's records as one JSON object, path to text

The pod's environment says which run it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

SPARE = "spare_process"
"""In the command line of the process that has imported torch and waits, and of what is forked from it."""
FILLER = "drill-filler"
BLOCK = b"\0" * (1 << 16)
NONSENSE = (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"[]\n")
GREETINGS = (b"", b'{"kind": "Hello"', b"", *NONSENSE)
"""What strangers say: nothing, half a line, another protocol."""
TOPPED_UP_EVERY = 1.0
SAVE_WITHIN = 60.0
MOST_TIMES = 20
"""Connections opened in all, as a multiple of those at a time."""


def main() -> None:
    """Do what the command line says."""
    command, *rest = sys.argv[1:]
    match command:
        case "signal":
            victim = process(rest[0])
            say(f"{time.time()}")  # before it is done, which may be the end of this process too
            os.kill(victim, signal.Signals[rest[1]])
        case "damage-newest":
            damage_newest()  # and no time for a newer one:
            os.kill(process("worker"), signal.Signals[rest[0]])
        case "kill-in-save":
            say(str(kill_in_save()))
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
    """The pid of the training process, of torchrun, or of the launcher.

    The training process is the deepest below PID 1, whatever started it: the launcher has a spare in between, or
    torchrun. Its command line does not tell, since a forked one has that of its spare.
    """
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
    if name == "torchrun":
        found = [pid for pid in commands if "torch.distributed.run" in commands[pid]]
    else:
        found = deepest(parents)
    if len(found) != 1:
        sys.exit(f"found {len(found)} processes that could be the {name}: {[commands[pid] for pid in found]}")
    if SPARE in commands[found[0]] and SPARE not in commands.get(parents[found[0]], ""):
        sys.exit(f"there is no {name} in this pod, only the spare that it would be forked from")
    return found[0]


def deepest(parents: dict[int, int]) -> list[int]:
    """The processes with the most generations between them and PID 1, this one's kin aside; empty where there are none.

    ``parents`` has the parent's pid of each process; what came in from outside, as this program did, has 0.
    """

    def depth(pid: int) -> int:
        if pid == 1:
            return 0
        above = depth(parents[pid]) if parents.get(pid) else -1
        return -1 if above < 0 else above + 1

    depths = {pid: depth(pid) for pid in parents}
    most = max(depths.values(), default=0)
    return [pid for pid, at in depths.items() if at == most > 0]


def say(line: str) -> None:
    """For whoever reads along."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


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


def kill_in_save() -> int:
    """Wait for the next save, and kill the worker while it lasts; the step that was to be saved."""
    victim = process("worker")
    folder = state_dir() / "checkpoints"
    known = set(unfinished(folder))
    deadline = time.monotonic() + SAVE_WITHIN
    while not (begun := [name for name in unfinished(folder) if name not in known]):  # no pause: it may last 10 ms
        if time.monotonic() > deadline:
            sys.exit(f"no save has begun within {SAVE_WITHIN:g} s")
    os.kill(victim, signal.SIGKILL)
    return int(begun[0].split("-")[1].partition(".")[0])


def unfinished(folder: Path) -> list[str]:
    """Folders of checkpoints that are being written, or whose writers were killed."""
    return [path.name for path in folder.glob(".step-*.tmp")]


def fill() -> None:
    """Write until the volume refuses."""
    with (root() / FILLER).open("wb", buffering=0) as file:
        try:
            while file.write(BLOCK) == len(BLOCK):
                pass
        except OSError:
            return


def crowd(host: str, port: int, *, count: int, seconds: float) -> None:
    """Have ``count`` connections stand for some seconds: each that is dropped is replaced.

    Prints a line when the first ``count`` stand, and in the end how many were opened, dropped by the other side, and
    could not be opened.
    """
    where = (str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]), port)  # not hundreds of times
    standing: list[socket.socket] = []
    opened = dropped = refused = 0
    until = 0.0
    while not until or time.monotonic() < until:
        for _ in range(min(count - len(standing), count * MOST_TIMES - opened)):
            try:
                standing.append(stranger(where, GREETINGS[opened % len(GREETINGS)]))
            except OSError:
                refused += 1
                break  # a second later there may be room again
            opened += 1
        if not until:
            until = time.monotonic() + seconds
            say("stands")
        time.sleep(TOPPED_UP_EVERY)
        alive = [one for one in standing if not is_dropped(one)]
        dropped += len(standing) - len(alive)
        standing = alive
    for connection in standing:
        connection.close()
    say(json.dumps({"opened": opened, "dropped": dropped, "refused": refused}))


def stranger(where: tuple[str, int], greeting: bytes) -> socket.socket:
    """A connection on which ``greeting`` was said. Raises OSError."""
    connection = socket.create_connection(where, timeout=2)
    with contextlib.suppress(OSError):  # dropped already: that is found later
        connection.sendall(greeting)
    connection.setblocking(False)
    return connection


def is_dropped(connection: socket.socket) -> bool:
    """Whether the other side has closed it; then it is closed here too."""
    try:
        while connection.recv(1 << 12):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    connection.close()
    return True


def dump() -> None:
    """Print every JSON file below the state directory."""
    files = [*state_dir().rglob("*.json"), *state_dir().rglob("*.jsonl")]
    json.dump({str(file.relative_to(state_dir())): file.read_text() for file in files}, sys.stdout)


if __name__ == "__main__":
    main()
