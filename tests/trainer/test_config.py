from __future__ import annotations

from pathlib import Path

import pytest

from rankzero import config
from rankzero.config import RunConfig
from rankzero.errors import ConfigError


def load(tmp_path: Path, text: str) -> RunConfig:
    path = tmp_path / "train.yaml"
    path.write_text(text)
    return config.load(path)


def test_what_is_not_set_takes_the_dataclass_default(tmp_path: Path) -> None:
    loaded = load(tmp_path, "launch: {script: a.py}")
    assert loaded == RunConfig(launch=config.LaunchConfig(script="a.py"))
    assert loaded.world_size == 1


def test_numbers_in_the_form_that_helm_writes_are_numbers(tmp_path: Path) -> None:
    loaded = load(tmp_path, "launch: {script: a.py}\ntrain: {learningRate: 1e-05, epochs: 1e+06}")
    assert loaded.train.learning_rate == 1e-05
    assert loaded.train.epochs == 1_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the document must be a mapping, got None"),
        ("[1]", "the document must be a mapping"),
        ("a: [", "is not YAML"),
        ("train: {}", "launch is required"),
        ("launch: {}", "launch.script and launch.command are both empty"),
        ("launch: {script: a.py, command: [b]}", "launch.script and launch.command are both set"),
        ("launch: {command: [b], method: torchrun}", "launch.method is torchrun but launch.command is set"),
        ("launch: {script: a.py, nodes: 0}", "launch.nodes is 0, the least allowed is 1"),
        ("launch: {script: a.py, nodes: 1.5}", "launch.nodes must be a whole number, got 1.5"),
        ("launch: {script: a.py, nodes: '2'}", "launch.nodes must be a whole number, got '2'"),
        ("launch: {script: a.py, nodes: true}", "launch.nodes must be a whole number, got True"),
        ("launch: {script: a.py, statusPort: 70000}", "launch.statusPort is 70000, the most allowed is 65535"),
        ("launch: {script: a.py, args: x}", "launch.args must be a list, got 'x'"),
        ("launch: {script: a.py, args: [1]}", "launch.args[0] must be a text, got 1"),
        ("launch: {script: a.py}\ntrain: {epoch: 1}", "unknown setting train.epoch"),
        ("launch: {script: a.py}\ntrain: {backend: ncll}", "train.backend is 'ncll'"),
        ("launch: {script: a.py}\ntrain: {learningRate: 0}", "train.learningRate is 0.0, it must be greater than 0"),
        ("launch: {script: a.py}\ntrain: {learningRate: .nan}", "train.learningRate is nan"),
        ("launch: {script: a.py}\ntrain: {checkpoint: {keep: 0}}", "train.checkpoint.keep is 0"),
        ("launch: {script: a.py}\ntrain: {checkpoint: 5}", "train.checkpoint must be a mapping, got 5"),
    ],
)
def test_a_wrong_setting_is_named_with_its_path_and_value(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_missing_file_says_where_the_chart_puts_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the chart mounts them at /etc/rankzero/train.yaml"):
        config.load(tmp_path / "none.yaml")
