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


def test_a_script_without_a_launcher_reads_the_train_part_of_a_values_file(tmp_path: Path) -> None:
    """Its mesh is for the ranks that torchrun starts, not for the nodes of the values."""
    file = tmp_path / "values.yaml"
    file.write_text("nodes: 3\nresources: {gpus: 8}\ntrain: {batchSize: 4, parallel: {tensor: 2}}\n")
    found = config.load_train(file)
    assert (found.batch_size, found.parallel.tensor) == (4, 2)
    file.write_text("launch: {script: x.py, nodes: 3}\n")
    assert config.load_train(file) == config.TrainConfig()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"batchSize: 4\n", "has no train: part, only batchSize"),
        (b"{}\n", "has no train: part, only nothing"),
        (b"", "has no train: part, only nothing"),
        (b"- 1\n", r"train must be a mapping, got \[1\]"),
        (b"train: [4]\n", r"train must be a mapping, got \[4\]"),
        (b"train: {batch: 4}\n", "unknown setting train.batch"),
        (b"\xff\xfe\n", "is not UTF-8 text"),
        (b"train: {\n", "is not YAML"),
    ],
)
def test_a_file_without_a_train_part_is_refused_by_what_it_has(tmp_path: Path, text: bytes, told: str) -> None:
    file = tmp_path / "train.yaml"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=told):
        config.load_train(file)


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
@pytest.mark.parametrize("key", ["learningRate", "clipNorm"])
def test_figures_that_are_no_numbers_are_refused(tmp_path: Path, key: str, value: str) -> None:
    """An infinite cache or interval would end as an OverflowError somewhere in the run."""
    with pytest.raises(ConfigError, match=f"train.{key} is -?(nan|inf), and no finite number"):
        load(tmp_path, f"launch: {{script: x.py}}\ntrain: {{{key}: {value}}}\n")


def test_whole_numbers_end_where_helm_cannot_hold_them_exactly(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train.epochs is 10{30}, the most allowed is 9007199254740991"):
        load(tmp_path, f"launch: {{script: x.py}}\ntrain: {{epochs: 1{'0' * 30}}}\n")
