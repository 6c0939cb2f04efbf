"""A worker with a real gloo group: makes steps with a collective each, until the test lets it end.

gloo_worker.py FOLDER wait                    end with status 0 once FOLDER/release exists
gloo_worker.py FOLDER exit RANK CODE          rank RANK ends with CODE in its first attempt
gloo_worker.py FOLDER raise RANK              like exit, by an exception under torch's @record
gloo_worker.py FOLDER save                    when asked to stop, all ranks note the step in FOLDER/saved-RANK and leave
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.train.distributed import process_group
from rankzero.train.progress import Progress
from rankzero.train.stopping import StopRequest

folder, mode, *rest = sys.argv[1:]
here = Path(folder)
attempt = int(os.environ[contract.ENV_ATTEMPT])


def note_down(rank: int, environment: dict[str, str]) -> None:
    target = here / f"attempt-{attempt}" / f"rank-{rank}.json"
    target.parent.mkdir(exist_ok=True)
    target.with_suffix(".tmp").write_text(json.dumps({**environment, "pid": str(os.getpid())}))
    target.with_suffix(".tmp").replace(target)


@record
def main() -> None:
    given = dict(os.environ)
    tick = threading.Event()
    config = TrainConfig(backend="gloo", log_every_steps=10**9)
    with process_group(config) as ranks:
        stop = StopRequest(ranks)
        saves = mode == "save"
        progress = Progress(config, ranks, total_steps=10**9, resumed_from=0, saves_on_stop=saves)
        step, released = 0, torch.zeros(1)
        while not released:
            step += 1
            released[0] = (here / "release").exists()
            dist.all_reduce(released, dist.ReduceOp.MIN)  # all ranks; 1 once each has seen the file
            leaving = saves and stop.due(step)
            progress.step(step, epoch=0, loss=0.0, learning_rate=0.0, leaving=leaving)
            if step == 1:
                note_down(ranks.rank, given)
                print(f"line of rank {ranks.rank}", flush=True)
            if leaving:
                (here / f"saved-{ranks.rank}").write_text(str(step))
                sys.exit(contract.EXIT_REQUEUE)
            if mode in {"exit", "raise"} and attempt == 1 and ranks.rank == int(rest[0]) and step == 3:
                if mode == "raise":
                    raise ValueError("as the test asked")
                print("RuntimeError: as the test asked", flush=True)
                os._exit(int(rest[1]))
            tick.wait(0.02)


main()
