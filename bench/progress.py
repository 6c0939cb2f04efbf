"""`python -m bench.progress`: what a step costs more where a training says how it goes.

The same loop over a tiny model, without and with progress, in turns; what counts is the difference of processor time,
against the smallest step for which it was promised. Writes bench/results/progress.json. On a busy machine start it with
`chrt -f 10`: interrupted, it counts what others do to the caches too.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

from bench import result_file
from rankzero import contract, heartbeat
from rankzero.config import ProgressConfig, TrainConfig
from rankzero.heartbeat import Heartbeat
from rankzero.train.distributed import Ranks
from rankzero.train.progress import Progress

STEP_S, SHARE = 0.02, 0.01
STEPS, TURNS, LOG_EVERY = 500, 15, 10


def train(progress: Progress | None, watch: bool) -> float:
    """Seconds of processor time for one step of a loop."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if progress is not None and watch:
        progress.watch(model, optimizer)
    batches: Any = [torch.ones(4, 2)] * STEPS
    began = time.process_time()
    for step, inputs in enumerate(batches if progress is None else progress.batches(batches), 1):
        optimizer.zero_grad()
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        if progress is not None:
            progress.step(step, epoch=0, loss=loss.item(), learning_rate=0.01, samples=4, tokens=4)
        else:
            loss.item()
    return (time.process_time() - began) / STEPS


def progress(**settings: Any) -> Progress:
    """That of a rank 0 which a launcher has started."""
    folder = Path(tempfile.mkdtemp(dir=os.environ[contract.ENV_STATE_DIR]))
    heartbeat._current = Heartbeat(folder / "heartbeat")
    config = TrainConfig(log_every_steps=LOG_EVERY, progress=ProgressConfig(**settings))
    alone = Ranks(0, 0, 1, torch.device("cpu"), HashStore())
    return Progress(config, alone, total_steps=STEPS, resumed_from=0)


FORMS: dict[str, Callable[[], float]] = {
    "without": lambda: train(None, False),
    "heartbeat, log and metrics": lambda: train(progress(), False),
    "and phases told apart": lambda: train(progress(), True),
    "and TensorBoard": lambda: train(progress(tensorboard=True), True),
}


def main() -> int:
    """Returns 0 where the target is met, else 1."""
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.environ[contract.ENV_STATE_DIR] = folder
        out, sys.stdout = sys.stdout, nowhere
        try:
            taken = [{name: form() for name, form in FORMS.items()} for _ in range(TURNS)]
        finally:
            sys.stdout = out
    costs = {
        name: {
            "median_us": round(1e6 * median(turn[name] - turn["without"] for turn in taken), 1),
            "most_us": round(1e6 * max(turn[name] - turn["without"] for turn in taken), 1),
        }
        for name in list(FORMS)[1:]
    }
    share = costs["and TensorBoard"]["median_us"] / (STEP_S * 1e6)
    found = {
        "machine": {**result_file.machine(), "torch": torch.__version__},
        "settings": {"steps": STEPS, "turns": TURNS, "log_every": LOG_EVERY, "step_s": STEP_S, **_surroundings()},
        "processor_time_a_step": costs,
        "targets": {"share_of_a_20_ms_step": result_file.at_most(round(share, 5), SHARE)},
    }
    sys.stderr.write(f"written: {result_file.write('progress', found)}\n{found['targets']}\n{costs}\n")
    return 0 if found["targets"]["share_of_a_20_ms_step"]["met"] else 1


def _surroundings() -> dict[str, Any]:
    """How much else went on, and whether that could interrupt this process."""
    return {"load": round(os.getloadavg()[0], 1), "real_time": os.sched_getscheduler(0) == os.SCHED_FIFO}


if __name__ == "__main__":
    sys.exit(main())
