"""What a run says of its speed, its memory and its share of what a GPU can."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from rankzero.heartbeat import Beat, Heartbeat
from rankzero.train import flops, memory
from rankzero.train.speed import Speed, sentence


class Run:
    """A rank whose heartbeat the test sets."""

    def __init__(self, **known: float) -> None:
        self.beat: Beat = Heartbeat().beat
        self.speed = Speed(lambda: self.beat, **known)
        self.speed.look()

    def go_on(self, seconds: float, *, steps: int, samples: int, tokens: int = 0, **spent: float) -> None:
        total = {name: self.beat.seconds.get(name, 0.0) + more for name, more in spent.items()}
        self.beat = dataclasses.replace(
            self.beat,
            moved=self.beat.moved + seconds,
            step=self.beat.step + steps,
            samples=self.beat.samples + samples,
            seconds=total,
        )
        self.speed.add(tokens)


def test_figures_are_of_the_steps_since_the_look_before() -> None:
    run = Run()
    run.go_on(10, steps=20, samples=640, tokens=5120, data=1.0, forward=4.0, sync=5.0)
    figures = run.speed.look()
    assert figures["steps_per_second"] == 2
    assert figures["samples_per_second"] == 64
    assert figures["tokens_per_second"] == 512
    assert figures["shares"] == {"data": 0.1, "forward": 0.4, "sync": 0.5}
    run.go_on(10, steps=10, samples=160, data=9.0)
    figures = run.speed.look()
    assert figures["steps_per_second"] == 1
    assert figures["shares"]["data"] == 0.9
    assert "tokens_per_second" not in figures
    assert sentence(figures) == "1.0 steps/s  16 samples/s  data wait 90%"


def test_nothing_is_said_of_speed_before_there_is_a_step() -> None:
    run = Run()
    assert run.speed.look() == {}
    run.go_on(5, steps=0, samples=0)
    assert run.speed.look() == {}
    assert sentence({}) == ""


def test_the_share_of_a_gpu_is_samples_times_their_cost_over_what_all_gpus_can() -> None:
    run = Run(flops_per_sample=2e12, peak=8 * 989.4e12)
    run.go_on(1, steps=1, samples=1024)
    figures = run.speed.look()
    assert figures["mfu"] == pytest.approx(1024 * 2e12 / (8 * 989.4e12), rel=1e-5)
    assert "mfu 25.9%" in sentence(figures)


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.4),
        ("NVIDIA H200", 989.4),
        ("NVIDIA H20", 148),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 0),
        ("NVIDIA GB200", 2500),
        ("NVIDIA B200", 2250),
        ("NVIDIA L40", 181.05),
        ("NVIDIA L40S", 362.05),
        ("AMD Instinct MI300X", 1307.4),
        ("NVIDIA GeForce GT 710", 0),
        ("", 0),
    ],
)
def test_the_peak_is_that_of_the_very_gpu_or_unknown(name: str, tera: float) -> None:
    assert flops.peak(name) == tera * 1e12


def test_pytorch_counts_what_a_model_costs_forward_and_backward() -> None:
    with torch.device("meta"):  # without the time or memory of computing it
        model, inputs = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)), torch.empty(32, 64)
    products = 32 * 64 * 128, 32 * 128 * 1
    # Forward once; backward for the weights, and for the inputs of all but the first layer. Two FLOPs a product.
    assert flops.count(lambda: model(inputs).sum()) == 2 * (2 * products[0] + 3 * products[1])


def test_a_decoder_costs_six_flops_a_parameter_and_token_and_its_attention() -> None:
    """PaLM's formula; its terms by hand for the shape of a GPT of 124 million."""
    per_token = flops.of_transformer_token(85_000_000, layers=12, width=768, sequence=1024)
    assert per_token == 6 * 85_000_000 + 12 * 12 * 768 * 1024


MIB = 2**20


def verdicts(*held: int) -> list[bool]:
    growth = memory.Growth("the memory of rank 0")
    return [bool(growth.mark(now * MIB)) for now in held]


def test_memory_that_rises_in_every_epoch_is_a_leak_and_said_once() -> None:
    """Known failure A22: growth that nobody sees ends in an OOM kill."""
    assert verdicts(100, 1000, 1100, 1200, 1300, 1400, 1500) == [False] * 5 + [True, False]


@pytest.mark.parametrize(
    "held",
    [
        (100, 1000, 1000, 1000, 1000, 1000, 1000),  # the first epoch is no mark: caches fill
        (1000, 1100, 1200, 1150, 1300, 1400, 1350),  # up and down
        (1000, 1001, 1002, 1003, 1004, 1005, 1006),  # an allocator that keeps some
        (90000, 90100, 90200, 90300, 90400, 90500, 90600),  # the same, of a large process
    ],
)
def test_memory_that_settles_or_goes_up_and_down_is_none(held: tuple[int, ...]) -> None:
    assert not any(verdicts(*held))


def test_the_sentence_of_a_leak_has_the_rank_and_the_rate() -> None:
    growth = memory.Growth("the memory of rank 3")
    said = [growth.mark(now * MIB) for now in (0, 1000, 1100, 1200, 1300, 1400)][-1]
    assert said.startswith("the memory of rank 3 has grown 4 times in a row, from 1000 to 1400 MiB, 100 MiB each time")


def test_the_memory_of_this_process_is_measured() -> None:
    before = memory.usage()
    assert min(before.values()) > 0
    kept = bytearray(b"\1" * (256 * MIB))
    assert memory.usage()["host"] - before["host"] > len(kept) / 2
