"""Runs inside a pod: kill the training process with SIGKILL and print the time, in seconds since the epoch.

The training process is the deepest in the tree below PID 1: the launcher has a spare in between, torchrun has not.
Its command line does not tell, since a forked worker has that of its spare.
"""

import os
import signal
import time
from pathlib import Path

parents = {}
for folder in Path("/proc").iterdir():
    if folder.name.isdecimal() and int(folder.name) != os.getpid():
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])


def depth(process: int) -> int:
    """Generations below PID 1; 0 for it, and for what was not started by it."""
    return 0 if process == 1 or process not in parents else 1 + depth(parents[process])


victim = max(parents, key=depth)
if not depth(victim):
    raise SystemExit("there is no training process in this pod")
at = time.time()
os.kill(victim, signal.SIGKILL)
print(at)  # noqa: T201
