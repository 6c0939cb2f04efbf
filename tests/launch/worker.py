"""A worker without torch: writes down what it was given, then does what the test asked for.

worker.py FOLDER wait                        end with status 0 once FOLDER/release exists
worker.py FOLDER fail RANK CODE ATTEMPTS     rank RANK ends with CODE in the first ATTEMPTS attempts; others wait
worker.py FOLDER advance RANK CODE           like fail for ever, but each attempt gains a step
worker.py FOLDER echo RANK CODE              rank RANK ends with CODE after all others have lost their peer and ended
worker.py FOLDER hoard RANK MIB ATTEMPTS     rank RANK takes MIB of memory in the first ATTEMPTS attempts, then waits
worker.py FOLDER stubborn                    ignores SIGTERM and has a child that does too
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

folder, mode, *rest = sys.argv[1:]
rank, attempt = int(os.environ["RANK"]), int(os.environ["RANKZERO_ATTEMPT"])
here = Path(folder)
record = {**os.environ, "pid": str(os.getpid())}
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])  # inherits the ignored SIGTERM
    record["child"] = str(child.pid)
target = here / f"attempt-{attempt}" / f"rank-{rank}.json"
target.parent.mkdir(exist_ok=True)
target.with_suffix(".tmp").write_text(json.dumps(record))
target.with_suffix(".tmp").replace(target)

tick = threading.Event()
while len(list(target.parent.glob("rank-*.json"))) < int(os.environ["WORLD_SIZE"]):
    tick.wait(0.02)  # nobody fails before everybody has written down that it was there

if mode in {"fail", "advance"} and rank == int(rest[0]):
    if mode == "advance":
        progress = Path(os.environ["RANKZERO_STATE_DIR"], "progress/rank-00000.json")
        progress.parent.mkdir(exist_ok=True)
        progress.write_text(json.dumps({"rank": 0, "attempt": attempt, "step": attempt, "time": 0.0}))
    if mode == "advance" or attempt <= int(rest[2]):
        print("RuntimeError: as the test asked", flush=True)
        sys.exit(int(rest[1]))

if mode == "echo":
    mark = target.parent / "echoed"
    if rank != int(rest[0]):
        print("RuntimeError: Connection closed by peer", flush=True)
        mark.touch()
        sys.exit(1)
    while not mark.exists():
        tick.wait(0.02)
    tick.wait(0.5)  # the others' ends are known by now, as when an interpreter takes its time to end
    print("ValueError: a bug", flush=True)
    sys.exit(int(rest[1]))

hoard = b""
if mode == "hoard" and rank == int(rest[0]) and attempt <= int(rest[2]):
    hoard = b"x" * (int(rest[1]) * 2**20)
    (here / f"attempt-{attempt}" / "hoarded").touch()

while not (here / "release").exists():
    tick.wait(0.02)
