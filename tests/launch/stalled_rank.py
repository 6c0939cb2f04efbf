"""A rank without torch that beats once and hangs.

stalled_rank.py DELAY...   answer the order to dump as NCCL's monitor does (a mock: NCCL needs a GPU): look at the pipe
                           once a second, then write a part of the flight record after each DELAY in seconds
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from rankzero import contract, heartbeat

LOOK_EVERY = 1.0
PART = "x" * 1000

folder, rank = Path(os.environ[contract.ENV_ATTEMPT_DIR]), int(os.environ["RANK"])
delays = [float(delay) for delay in sys.argv[1:]]
tick = threading.Event()


def answer_orders() -> None:
    """As ProcessGroupNCCL's heartbeat monitor."""
    path = Path(f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe")
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    (folder / "listening").touch()
    while not os.read(pipe, 128):
        tick.wait(LOOK_EVERY)
    with Path(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}").open("w") as file:
        for delay in delays:
            tick.wait(delay)
            file.write(PART)
            file.flush()


def wait_for_ever() -> None:
    """A name to be found in the stack."""
    heartbeat.current().step(1, epoch=0, loss=0.5)
    threading.Event().wait()


if delays:
    threading.Thread(target=answer_orders).start()
wait_for_ever()
