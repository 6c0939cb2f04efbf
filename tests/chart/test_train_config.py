"""What is set in the values is what the launcher reads, however Helm writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import minimal, only, render, run_config


def test_only_keys_that_are_set_are_written() -> None:
    written = yaml.safe_load(only(render(minimal({"train.epochs": 3})), "ConfigMap")["data"]["train.yaml"])
    assert written == {
        "launch": {"script": "/opt/rankzero/examples/mnist.py", "args": [], "nodes": 1, "procsPerNode": 1},
        "train": {"epochs": 3},
    }


@pytest.mark.parametrize("rate", [1e-07, 1e-05, 0.0001, 0.1, 1, 1e6, 1e21])
def test_a_learning_rate_of_any_size_arrives(rate: float, tmp_path: Path) -> None:
    loaded = run_config(render(minimal({"train.learningRate": rate})), tmp_path)
    assert loaded.train.learning_rate == rate


@pytest.mark.parametrize("steps", [999_999, 1_000_000, 12_345_678])
def test_a_whole_number_of_any_size_arrives(steps: int, tmp_path: Path) -> None:
    loaded = run_config(render(minimal({"train.checkpoint": {"everySteps": steps}})), tmp_path)
    assert loaded.train.checkpoint.every_steps == steps


def test_numbers_of_the_command_line_arrive(tmp_path: Path) -> None:
    """`--set` knows whole numbers only; fractions need `--set-json`, as docs/chart.md says."""
    extra = ["--set", "train.checkpoint.everySteps=1000000", "--set-json", "train.learningRate=0.00001"]
    train = run_config(render(minimal({}), extra=extra), tmp_path).train
    assert (train.checkpoint.every_steps, train.learning_rate) == (1_000_000, 1e-05)


def test_a_whole_number_in_exponent_form_arrives(tmp_path: Path) -> None:
    train = run_config(render(minimal({}), extra=["--set-json", "train.seed=1e6"]), tmp_path).train
    assert train.seed == 1_000_000


def test_texts_that_look_like_something_else_arrive_as_texts(tmp_path: Path) -> None:
    """YAML would read these as numbers, times, truth values or markers if they were written without quotes."""
    arguments = ["1e5", "1e-5", "0x10", "010", "1_000", "12:30:45", "2026-01-31", "yes", "off", "null", "~", "", "a: b",
                 "# no comment", "- x", "{{ x }}", "line\nbreak", "ä"]  # fmt: skip
    loaded = run_config(render(minimal({"launch.args": arguments})), tmp_path)
    assert list(loaded.launch.args) == arguments
