"""A training for drills: small, deterministic, with a pace and with faults on demand.

    rankzero launch                                        in a pod of the chart
    torchrun --nproc-per-node 2 drill.py --fail-at 7       anywhere else

Data follow from (seed, step, rank) alone, and dropout from the random states in the checkpoint, so that a run that
skipped or repeated anything ends with other weights. Settings as in mnist.py; `train.epochs` means nothing here.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import re
import sys
import threading

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.train import entry
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.distributed import Ranks, process_group
from rankzero.train.parallel.apply import parallelize
from rankzero.train.parallel.mesh import build, data_ranks
from rankzero.train.parallel.step import Step
from rankzero.train.progress import Progress, report_result
from rankzero.train.schedule import scaled_learning_rate
from rankzero.train.stopping import StopRequest

FEATURES = 64


def fault(text: str) -> str:
    """A KIND of the command line, checked."""
    if re.fullmatch(r"error|oom|exit:\d{1,3}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not error, oom or exit:CODE")
    return text


def parse_arguments() -> argparse.Namespace:
    """The command line; a fault strikes before its step has changed anything."""
    parser = argparse.ArgumentParser(description="A training for drills.")
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps in all")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds of pretended compute per step")
    parser.add_argument("--fail-at", type=int, default=0, metavar="STEP", help="step in which a rank fails; 0: none")
    parser.add_argument("--fail-with", default="error", metavar="KIND", type=fault, help="error, oom or exit:CODE")
    parser.add_argument("--allocate-at", type=int, default=0, metavar="STEP", help="step in which a rank takes memory")
    parser.add_argument("--allocate", type=int, default=0, metavar="MIB", help="how much of it, for good")
    parser.add_argument("--fail-rank", type=int, default=0, metavar="RANK", help="the rank that a fault strikes")
    parser.add_argument("--fail-attempts", default="1", metavar="N", help="strike in attempts 1 to N, or `always`")
    return parser.parse_args()


class Faults:
    """What goes wrong on this rank in this attempt."""

    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        attempt = int(os.environ.get(contract.ENV_ATTEMPT, 1))
        attempts = math.inf if options.fail_attempts == "always" else int(options.fail_attempts)
        self._struck = rank == options.fail_rank and attempt <= attempts
        self._options = options
        self._taken = b""

    def strike(self, step: int) -> None:
        """Do what the command line asks for in this step, if anything."""
        options = self._options
        if self._struck and step == options.allocate_at:
            self._taken = b"\1" * (options.allocate << 20)  # written to, so that it is really taken
        if not self._struck or step != options.fail_at:
            return
        if options.fail_with == "oom":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB (made up by a drill)")
        kind, _, code = options.fail_with.partition(":")
        if kind == "exit":
            sys.exit(int(code))
        raise RuntimeError(f"a drill made step {step} fail")


def batch(config: TrainConfig, step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Inputs (batch, FEATURES) and targets (batch, 1) of one rank in one step."""
    seed = (config.seed * 1_000_003 + step) * 1_000_003 + rank
    inputs = torch.randn(config.batch_size * config.accumulate, FEATURES, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs.sin().mean(1, keepdim=True)


class Last:
    """The last loss, which a run that is resumed after its last step still has to report."""

    loss = math.nan

    def state_dict(self) -> dict[str, float]:
        """For the checkpoint."""
        return {"loss": self.loss}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """From the checkpoint."""
        self.loss = state["loss"]


def weights_hash(model: nn.Module) -> int:
    """A number that tells whether two models are equal bit for bit. Every rank calls it, for its part of them."""
    digest = hashlib.sha256()
    for weights in get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)).values():
        assert isinstance(weights, Tensor)
        digest.update(weights.cpu().numpy().tobytes())
    return int.from_bytes(digest.digest()[:6], "big")  # what a JSON number holds exactly


def train(config: TrainConfig, options: argparse.Namespace, ranks: Ranks, checkpoints: Checkpoints) -> None:
    """The whole run on one rank."""
    mesh = build(config, ranks)
    index, count = data_ranks(mesh)
    plain = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1))
    model = parallelize(plain, mesh, config)
    optimizer = torch.optim.SGD(model.parameters(), scaled_learning_rate(config, count), momentum=0.9)
    trained = Step(model, optimizer, mesh, config, loss=F.mse_loss)

    last = Last()
    checkpoints.track(model=model, optimizer=optimizer, last=last, **trained.state)
    step = checkpoints.resume()
    for group in optimizer.param_groups:  # a rate that was changed since counts from here on
        group["lr"] = scaled_learning_rate(config, count)
    stop, faults = StopRequest(ranks), Faults(options, ranks.rank)
    progress = Progress(config, ranks, total_steps=options.steps, resumed_from=step, saves_on_stop=True)

    while step < options.steps:
        step += 1
        threading.Event().wait(options.pace)  # where the clock is faked, time.sleep fails
        faults.strike(step)
        trained.run(*batch(config, step, index))
        done = trained.finish()
        last.loss, stopping = done.loss, stop.due(step)
        progress.step(step, epoch=0, loss=last.loss, learning_rate=done.learning_rate, leaving=stopping)
        if checkpoints.due(step) or stopping or step == options.steps:
            checkpoints.save(step, wait=stopping, final=step == options.steps)
        if stopping:
            sys.exit(contract.EXIT_REQUEUE)
    final = weights_hash(model)
    if ranks.is_first:
        report_result(loss=last.loss, weights_hash=final, steps=step)


def main() -> None:
    """Read the settings, join the group, train."""
    options = parse_arguments()
    config = entry.train_config(TrainConfig(learning_rate=0.01))
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which that asks for on a GPU
    with process_group(config) as ranks, Checkpoints.of_run(config) as checkpoints:
        train(config, options, ranks, checkpoints)


if __name__ == "__main__":
    entry.run(main)
