"""One process that trains a model of a given size and saves it in each of the ways, turn by turn.

    python -m bench.checkpoint.measure GIGABYTES TOKENS ROUNDS FOLDER

Prints what it found as JSON. All ways share the model, and steps without a save stand between them: whatever else the
machine does meets all alike.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench.checkpoint.methods import METHODS, Method

WIDTH = 1024


def transformer(gigabytes: float) -> nn.Module:
    """Blocks whose weights, with AdamW's two averages for each, take about so much."""
    blocks = max(1, round(gigabytes * 1e9 / 12 / (12 * WIDTH * WIDTH)))
    one = nn.TransformerEncoderLayer(WIDTH, WIDTH // 64, 4 * WIDTH, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(one, blocks, enable_nested_tensor=False)


def measure(gigabytes: float, tokens: int, rounds: int, folder: Path) -> Iterator[dict[str, Any]]:
    """What is known after each round; the first one, in which memory is allocated, is told apart from the others."""
    model = transformer(gigabytes)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    inputs = torch.randn(1, tokens, WIDTH)

    def step() -> float:
        """Seconds of one step."""
        began = time.perf_counter()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        return time.perf_counter() - began

    state = sum(parameter.nbytes for parameter in model.parameters()) * 3
    for _ in range(2):
        step()
    methods = {
        name: method(folder / str(number), model, optimizer) for number, (name, method) in enumerate(METHODS.items())
    }
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    usual: list[float] = []
    for number in range(1, rounds + 1):
        for name, method in methods.items():
            turns[name].append(turn(method, number, step))
            usual.append(step())
        yield {
            "state_gb": round(state / 1e9, 2),
            "tensors": 3 * len(list(model.parameters())),
            "tokens_per_step": tokens,
            "threads": torch.get_num_threads(),
            "step_s": round(median(usual), 3),
            "steps_s": [round(one, 3) for one in usual],
            "methods": {name: summary(found, median(usual), state) for name, found in turns.items()},
        }
    for method in methods.values():
        method.finish()


def turn(method: Method, number: int, step: Callable[[], float]) -> dict[str, Any]:
    """One save and the steps until it is durable."""
    method.clear()
    before = forget_peak()
    began, processor = time.perf_counter(), time.process_time()
    method.save(number)
    called = time.perf_counter() - began
    steps = [step()]
    while method.is_writing:
        steps.append(step())
    return {
        "called_s": called,
        "waited_s": method.waited,
        "steps_s": steps,
        "processor_s": time.process_time() - processor,
        "memory": peak() - before,
    }


def summary(turns: list[dict[str, Any]], usual: float, state: int) -> dict[str, Any]:
    """Of one way. Extra is what save and steps took beyond steps without one."""
    blocked = [one["called_s"] + one["waited_s"] for one in turns]
    extra = [one["called_s"] + sum(one["steps_s"]) - len(one["steps_s"]) * usual for one in turns]
    return {
        "blocked_s": round(median(blocked[1:] or blocked), 4),
        "extra_s": round(median(extra[1:] or extra), 3),
        "memory_per_state": round(max(one["memory"] for one in turns) / state, 2),
        "each": {
            "called_s": [round(one["called_s"], 4) for one in turns],
            "waited_s": [round(one["waited_s"], 4) for one in turns],
            "extra_s": [round(one, 3) for one in extra],
            "steps_s": [[round(step, 3) for step in one["steps_s"]] for one in turns],
            "processor_s": [round(one["processor_s"], 2) for one in turns],
        },
    }


def forget_peak() -> int:
    """Bytes that this process holds; the most it held is counted from here."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The most bytes that this process has held."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measure, print a line after each round."""
    gigabytes, tokens, rounds, folder = sys.argv[1:]
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    for found in measure(float(gigabytes), int(tokens), int(rounds), Path(folder)):
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
