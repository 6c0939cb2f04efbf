"""A worker without torch: writes down what it was given, then does what the test asked for.

worker.py FOLDER wait                        end with status 0 once FOLDER/release exists
worker.py FOLDER fail RANK CODE ATTEMPTS     rank RANK ends with CODE in the first ATTEMPTS attempts; others wait
worker.py FOLDER advance RANK CODE           like fail for ever, but each attempt gains a step
worker.py FOLDER echo RANK CODE              rank RANK ends with CODE after all others have lost their peer and ended
worker.py FOLDER hoard RANK MIB ATTEMPTS     rank RANK takes MIB of memory in the first ATTEMPTS attempts, then waits
worker.py FOLDER step                        step every 20 ms; in attempt 1 wait for a peer once FOLDER/freeze exists
worker.py FOLDER hang RANK STEP              like step, but in attempt 1 rank RANK hangs after STEP, the others wait
worker.py FOLDER leave HOW                   like step, but when asked to save and leave: HOW is saved, unsaved or crash
worker.py FOLDER leave HOW late              the same, once FOLDER/begin exists, and FOLDER/begun-RANK after that
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

from rankzero import contract, heartbeat

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
        heartbeat.current().begin(total_steps=100, resumed_from=attempt - 1, saves_on_stop=False)
        heartbeat.current().step(attempt, epoch=0, loss=0.5)
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


def wait_for_a_batch_that_never_comes() -> None:
    """A name to be found in the stack."""
    with heartbeat.current().phase(heartbeat.Phase.DATA):
        threading.Event().wait()


step = 0
stepping = mode in {"step", "hang", "leave", "lag"}
if rest[1:] == ["late"]:
    heartbeat.current().enter(heartbeat.Phase.PREPARATION)
    while not (here / "begin").exists():
        tick.wait(0.02)
if stepping:
    heartbeat.current().begin(total_steps=1000, resumed_from=0, saves_on_stop=mode == "leave")
if mode == "leave":
    heartbeat.current().saved(0)
while not (here / "release").exists():
    if mode == "lag" and rank != int(rest[0]):  # which is in a collective when the others come
        with heartbeat.current().phase(heartbeat.Phase.SYNC):
            tick.wait(0.02)
    else:
        tick.wait(0.02)
    if stepping:
        step += 1
        heartbeat.current().step(step, epoch=0, loss=1 / step, samples=8)
        if step == 1 and rest[1:] == ["late"]:
            (here / f"begun-{rank}").touch()
    if mode == "leave" and Path(os.environ[contract.ENV_ATTEMPT_DIR], contract.STOP_FILE).exists():
        if rest[0] == "saved":
            heartbeat.current().saved(step)
        sys.exit(1 if rest[0] == "crash" else contract.EXIT_REQUEUE)
    if mode == "hang" and attempt == 1 and rank == int(rest[0]) and step == int(rest[1]):
        wait_for_a_batch_that_never_comes()
    alone = (here / "freeze").exists() if mode == "step" else mode == "hang" and step > int(rest[1])
    if attempt == 1 and alone:  # as in a collective without the rank that hangs
        with heartbeat.current().phase(heartbeat.Phase.SYNC):
            threading.Event().wait()
