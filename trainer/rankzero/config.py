"""Settings of a run: frozen dataclasses and their strict loading. No torch here.

The chart's ``values.schema.json`` is generated from these classes (``scripts/generate/schema.py``), so a
misspelt setting is refused by ``helm install`` and, for files that did not pass through Helm, again by
:func:`load`. YAML keys are the field names in camelCase. Bounds stand in a field's metadata, so the schema
and the loader cannot disagree.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from rankzero import contract, objects
from rankzero.errors import ConfigError
from rankzero.fields import bounded
from rankzero.parallel_config import ParallelConfig

T = TypeVar("T")


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads ``1e-05`` as a number: Helm writes that form, YAML 1.1 takes it for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


@dataclass(frozen=True)
class StallConfig:
    """When an attempt whose ranks report progress counts as stalled. Limits are seconds without any progress."""

    enabled: bool = bounded(True, doc="End an attempt in which no rank makes progress.")
    factor: float = bounded(5.0, minimum=1, doc="A step may take this many times the median of the steps before.")
    least: int = bounded(
        300,
        minimum=1,
        maximum=604800,
        doc="Seconds that a step may take in any case, with recompilation and evaluation that is not marked.",
    )
    startup: int = bounded(
        1800, minimum=1, maximum=604800, doc="Seconds for the first steps of an attempt, and to get there."
    )
    preparation: int = bounded(7200, minimum=1, maximum=604800, doc="Seconds to prepare a dataset.")
    checkpoint: int = bounded(1800, minimum=1, maximum=604800, doc="Seconds for one checkpoint.")
    evaluation: int = bounded(
        3600,
        minimum=1,
        maximum=604800,
        doc="Seconds for one evaluation, and from the end of the process group to that of the process.",
    )

    @property
    def longest(self) -> int:
        """The longest limit that is known beforehand, seconds."""
        return max(self.least, self.startup, self.preparation, self.checkpoint, self.evaluation)


@dataclass(frozen=True)
class FabricConfig:
    """What network.fabric of the chart promises about the way to the other machines."""

    preset: Literal["auto", "infiniband", "roce"] = bounded("auto", doc="Kind of fabric; auto promises nothing.")
    required: bool = bounded(False, doc="Do not train without it.")
    devices: tuple[str, ...] = bounded((), doc="RDMA devices to use, `NAME` or `NAME:PORT`; empty means all.")


@dataclass(frozen=True)
class LaunchConfig:
    """What ``rankzero launch`` starts and how long it waits. Times are seconds."""

    script: str = bounded("", doc="Path of the training script inside the image or on a volume.")
    nodes: int = bounded(1, minimum=1, maximum=10000, doc="Pods in the group, one a node.")
    procs_per_node: int = bounded(1, minimum=1, maximum=256, doc="Processes (ranks) per pod; usually its GPUs.")
    args: tuple[str, ...] = bounded((), doc="Arguments of the script.")
    command: tuple[str, ...] = bounded(
        (),
        doc="Program to start once a rank in the place of a script, with args after it: `[python, -m, team.train]`.",
    )
    method: Literal["direct", "launch", "torchrun"] = bounded(
        "direct",
        doc="How a script is started: by the launcher itself, with the environment that torchrun gives; so, and with "
        "--local-rank=N as its first argument, as by `python -m torch.distributed.launch`; or by one torchrun a pod, "
        "which takes seconds longer.",
    )
    warm: bool = bounded(True, doc="Fork workers from a process that has imported PyTorch, for starts within a second.")
    preload: tuple[str, ...] = bounded((), doc="More modules that this process imports beforehand.")
    rendezvous_port: int = bounded(
        contract.RENDEZVOUS_PORT,
        minimum=1024,
        maximum=65535,
        doc="Port of the coordinator on rank 0; with network.hostNetwork the chart derives another default.",
    )
    status_port: int = bounded(
        contract.STATUS_PORT,
        minimum=1024,
        maximum=65535,
        doc="Port of the status page in every pod; with network.hostNetwork the chart derives another default.",
    )
    rank0_timeout: int = bounded(
        600, minimum=1, maximum=604800, doc="Seconds until a pod gives up on rank 0, or rank 0 on the missing pods."
    )
    heartbeat_timeout: int = bounded(
        15, minimum=2, maximum=3600, doc="Seconds without a heartbeat after which a pod counts as lost."
    )
    stop_timeout: int = bounded(
        20, minimum=1, maximum=3600, doc="Seconds between SIGTERM and SIGKILL when workers are stopped."
    )
    save_timeout: int = bounded(
        30, minimum=0, maximum=3600, doc="Seconds for all ranks to save when a pod is being stopped; 0 saves nothing."
    )
    attempts_without_progress: int = bounded(
        3,
        minimum=1,
        maximum=1000,
        doc="Attempts in a row that may end without a new checkpoint before the run fails; without a new step, for a "
        "script that writes none.",
    )
    log_ranks: Literal["first", "all"] = bounded(
        "first", doc="Ranks whose output goes to the log of their pod; first is rank 0. The volume keeps all of them."
    )
    log_file_limit: int = bounded(
        64,
        minimum=0,
        maximum=2**20,
        doc="MiB of output kept per rank and attempt on the checkpoint volume; 0 keeps none.",
    )
    keep_logs: int = bounded(
        20,
        minimum=1,
        maximum=2**20,
        doc="Newest attempts whose output and stacks stay on the checkpoint volume; those of the first stay too.",
    )
    fabric: FabricConfig = field(
        default_factory=FabricConfig, metadata={"doc": "The fabric between machines, from network.fabric."}
    )
    stall: StallConfig = field(
        default_factory=StallConfig, metadata={"doc": "When an attempt without progress is ended and tried again."}
    )

    def __post_init__(self) -> None:
        """Raises :class:`ConfigError` unless there is one thing to start, and a way that can start it."""
        if bool(self.script) == bool(self.command):
            raise ConfigError(
                f"launch.script and launch.command are both {'set' if self.script else 'empty'}",
                hint="set one of them: the path of a Python script, or any other program",
            )
        if self.command and self.method != "direct":
            raise ConfigError(
                f"launch.method is {self.method} but launch.command is set",
                hint="leave launch.method out: only a script has another way to be started",
            )


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written and how many are kept."""

    every_steps: int = bounded(
        100,
        minimum=0,
        doc="Optimizer steps between two checkpoints, or everyMinutes, whichever is first; 0: no count.",
    )
    every_minutes: float = bounded(0.0, minimum=0, doc="Minutes between two checkpoints; 0: steps alone count.")
    interval: Literal["fixed", "auto"] = bounded(
        "fixed",
        doc="auto finds the interval that loses the least time (Daly 2006) from what a save costs here and mtbfHours; "
        "everySteps and everyMinutes then mean nothing.",
    )
    mtbf_hours: float = bounded(24.0, above=0, doc="Hours between two failures of the whole run, for interval: auto.")
    asynchronous: bool = bounded(
        True,
        doc="Write in the background while training goes on. Needs memory for a copy of what each rank writes.",
    )
    local_path: str = bounded(
        "",
        doc="Folder on a fast disk of each node, where checkpoints are written first, and copied from beside the "
        "training; empty: none. The chart's checkpoints.local sets it.",
    )
    mirror: str = bounded(
        "",
        doc="Object storage that finished checkpoints are copied to beside the training, e.g. "
        "`s3://bucket/checkpoints`; empty: none. A run whose own folder has none goes on from there.",
    )
    keep: int = bounded(3, minimum=1, doc="Checkpoints kept; the newest complete one is never deleted.")
    keep_every: int = bounded(0, minimum=0, doc="Checkpoints of multiples of so many steps stay as well; 0: none.")
    best: Literal["none", "lowest", "highest"] = bounded(
        "none", doc="Keep as well the one whose metric, given to save(), is the lowest or highest."
    )

    def __post_init__(self) -> None:
        """Raises :class:`ConfigError` where no checkpoint would ever be due, or a place is none that it can be."""
        if self.local_path and not Path(self.local_path).is_absolute():
            raise ConfigError(
                f"train.checkpoint.localPath is {self.local_path}, which depends on where a rank was started",
                hint="a full path, such as /local-checkpoints, or an empty text",
            )
        if self.mirror:
            objects.check_checkpoint_url(self.mirror, "train.checkpoint.mirror")
        if self.interval == "fixed" and not self.every_steps and not self.every_minutes:
            raise ConfigError(
                "train.checkpoint.everySteps and everyMinutes are both 0, so no checkpoint would be written",
                hint="set one of them, or train.checkpoint.interval to auto",
            )


@dataclass(frozen=True)
class ResumeConfig:
    """From what a run begins. Later attempts of the same run always go on from its own newest good checkpoint."""

    from_: str = bounded(
        "auto",
        non_empty=True,
        doc="auto: the newest good checkpoint of this run, if there is one. none: no checkpoint. Or a path: the folder "
        "of a checkpoint or of a run, also its URL in object storage, or a .safetensors, .pt, .pth or .bin file of "
        "weights.",
    )
    parts: tuple[str, ...] = bounded(
        (),
        doc="What to take of the checkpoint that a path names, e.g. `[model]`: names that the script tracks, random, "
        "step; empty means all. Without step the count begins at 0.",
    )
    strict: bool = bounded(True, doc="Refuse what does not fit exactly; false loads what fits, and says what does not.")

    def __post_init__(self) -> None:
        """Raises :class:`ConfigError` for a URL that names no checkpoints."""
        if objects.is_url(self.from_):
            objects.check_checkpoint_url(self.from_, "train.resume.from")


@dataclass(frozen=True)
class NonFiniteConfig:
    """What happens when the gradient of a step is NaN or infinite; all ranks find it in the same step."""

    action: Literal["stop", "skip"] = bounded(
        "stop", doc="End the attempt, or leave the weights as they are and go on with the next step."
    )
    limit: int = bounded(10, minimum=1, doc="Steps in a row that may be skipped before the attempt ends all the same.")


@dataclass(frozen=True)
class TimeoutConfig:
    """Seconds that one collective may wait where no launcher watches over the ranks, which has limits of its own."""

    first_step: int = bounded(1800, minimum=1, maximum=604800, doc="Until the end of the first step, which compiles.")
    step: int = bounded(600, minimum=1, maximum=604800, doc="From then on.")


@dataclass(frozen=True)
class ProgressConfig:
    """Where the figures of rank 0 go beside the log and metrics.jsonl, and what its speed is compared with."""

    tensorboard: bool = bounded(
        False, doc="Write TensorBoard's event files to `tensorboard/` in the state directory of the run."
    )
    wandb: str = bounded(
        "",
        doc="Project of Weights & Biases to report to; empty reports to none. The image needs wandb (EXTRAS), "
        "WANDB_API_KEY belongs into a Secret (secretEnv), WANDB_MODE: offline into network.env.",
    )
    mlflow: str = bounded(
        "",
        doc="Experiment of MLflow to report to; empty reports to none. The image needs mlflow or mlflow-skinny "
        "(EXTRAS), MLFLOW_TRACKING_URI the address of its server.",
    )
    peak_tflops: float = bounded(
        0.0,
        minimum=0,
        doc="What one GPU can do at most, in 1e12 FLOP/s, for the share of it that a training uses (MFU); 0 takes the "
        "dense BF16 figure of a GPU that is known.",
    )


@dataclass(frozen=True)
class DataLoaderConfig:
    """How the loader of ``rankzero.train.data`` reads."""

    workers: int = bounded(
        2, minimum=0, maximum=256, doc="Processes of each rank that read ahead; 0 reads in the training process."
    )
    prefetch: int = bounded(2, minimum=1, maximum=1024, doc="Batches that each of them has ready.")
    shuffle: bool = bounded(True, doc="Read in a new order each epoch, which follows from train.seed.")
    window: int = bounded(
        8, minimum=1, maximum=65536, doc="Shards whose samples are mixed; more mix better and need more cache."
    )
    drop_last: bool = bounded(False, doc="Leave out the samples at the end of an epoch that fill no whole batch.")
    max_bad_samples: int = bounded(
        0, minimum=0, doc="Damaged samples that each rank leaves out, and says, before it fails."
    )
    cache: str = bounded(
        "",
        doc="Folder on the node's disk to read through; empty means none for folders, the mountPath for a data set in "
        "object storage, and /tmp/cache/data for other URLs.",
    )
    cache_size: float = bounded(
        0.0,
        minimum=0,
        doc="GiB that the cache may hold; 0 means 90 % of the data set's cacheSize, else of what the disk has.",
    )


@dataclass(frozen=True)
class TrainConfig:
    """What a training script reads through :func:`load`."""

    backend: Literal["auto", "nccl", "gloo", "mpi"] = bounded(
        "auto",
        doc="Collective backend; auto is nccl with a GPU and gloo without. The pinned PyTorch build lacks mpi.",
    )
    seed: int = bounded(0, minimum=0, doc="Base of every random generator.")
    epochs: int = bounded(1, minimum=1, doc="Passes over the training data.")
    batch_size: int = bounded(32, minimum=1, doc="Samples per micro-batch of a rank that reads data of its own.")
    accumulate: int = bounded(
        1, minimum=1, doc="Micro-batches per optimizer step; with a pipeline, those that are in it one after the other."
    )
    learning_rate: float = bounded(1e-3, above=0, doc="Learning rate of one rank, before scaling.")
    lr_scaling: Literal["linear", "sqrt", "none"] = bounded(
        "linear", doc="How the learning rate grows with the micro-batches of all ranks in a step."
    )
    warmup_steps: int = bounded(0, minimum=0, doc="Steps in which the learning rate grows to its full height.")
    lr_decay: Literal["none", "cosine"] = bounded("cosine", doc="How it falls to 0 at the last step after that.")
    log_every_steps: int = bounded(10, minimum=1, doc="Steps between two progress lines of rank 0.")
    data: str = bounded(
        "",
        doc="Training data: a folder, a URL such as `s3://bucket/folder`, or the mountPath of one of `datasets`, in "
        "object storage too; empty means the script's own default.",
    )
    data_loader: DataLoaderConfig = field(
        default_factory=DataLoaderConfig, metadata={"doc": "How packed data is read; see docs/data.md."}
    )
    parallel: ParallelConfig = field(
        default_factory=ParallelConfig, metadata={"doc": "How the model and the data are spread over the ranks."}
    )
    precision: Literal["fp32", "bf16", "fp16"] = bounded(
        "fp32",
        doc="What layers compute with; weights, sums of gradients and optimizer stay fp32. fp16 needs a GPU.",
    )
    activation_checkpointing: Literal["none", "selective", "full"] = bounded(
        "none",
        doc="What the backward pass computes again, for less memory: all of a block but its matrix products, or all.",
    )
    clip_norm: float = bounded(0.0, minimum=0, doc="Largest norm of the whole gradient; 0 does not clip.")
    compile: bool = bounded(False, doc="Compile the model's blocks with torch.compile; the first step takes minutes.")
    deterministic: bool = bounded(False, doc="Only algorithms that give the same bits each time, or an error.")
    expandable_segments: bool = bounded(True, doc="Let PyTorch grow its pieces of GPU memory, against fragmentation.")
    non_finite: NonFiniteConfig = field(
        default_factory=NonFiniteConfig, metadata={"doc": "When a gradient is NaN or infinite."}
    )
    timeout: TimeoutConfig = field(
        default_factory=TimeoutConfig, metadata={"doc": "How long a collective may wait, without a launcher."}
    )
    checkpoint: CheckpointConfig = field(
        default_factory=CheckpointConfig, metadata={"doc": "When checkpoints are written and how many are kept."}
    )
    resume: ResumeConfig = field(default_factory=ResumeConfig, metadata={"doc": "From what a run begins."})
    progress: ProgressConfig = field(
        default_factory=ProgressConfig, metadata={"doc": "Where figures go beside the log and metrics.jsonl."}
    )


@dataclass(frozen=True)
class RunConfig:
    """The whole of ``train.yaml``: the contract between the chart and the pod."""

    launch: LaunchConfig
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        """Raises :class:`ConfigError` where the ranks do not make the mesh, before any of them has started."""
        self.train.parallel.sizes(self.world_size, self.launch.procs_per_node)

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.launch.nodes * self.launch.procs_per_node


def load(path: str | Path) -> RunConfig:
    """Read ``train.yaml``.

    Raises :class:`ConfigError` that names the key, the value got and the values allowed.
    """
    return parse(RunConfig, _document(path), "")


def load_train(path: str | Path) -> TrainConfig:
    """Only the ``train:`` part of a file: ``train.yaml``, or a values file of the chart.

    For scripts: without a launcher, nodes and ranks are those that torchrun or the like has started. Raises as
    :func:`load` does.
    """
    document = _document(path)
    if document is None:
        document = {}
    if isinstance(document, dict) and document.keys().isdisjoint({"train", "launch"}):
        raise ConfigError(
            f"{path} has no train: part, only {', '.join(map(str, document)) or 'nothing'}",
            hint=f"{contract.ENV_CONFIG} names a file whose settings are below train:, as in a values file",
        )
    part = document.get("train") if isinstance(document, dict) else document
    return parse(TrainConfig, {} if part is None else part, "train")


def _document(path: str | Path) -> Any:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot read the run's settings {path}: {error.strerror}",
            hint=f"the chart mounts them at {contract.CONFIG_PATH}; elsewhere set {contract.ENV_CONFIG} to a file",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}", hint="is it the file that is meant?") from error
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 -- a SafeLoader with one more number form
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}", hint="correct the line named above") from error


def parse(cls: type[T], document: object, where: str) -> T:
    """Build dataclass ``cls`` from a mapping; ``where`` is the key path that errors name."""
    if not isinstance(document, dict):
        raise ConfigError(f"{where or 'the document'} must be a mapping, got {document!r}", hint="see docs/values.md")
    hints = typing.get_type_hints(cls)
    by_key = {camel(f.name): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in document:
        if key not in by_key:
            raise ConfigError(f"unknown setting {join(where, str(key))}", hint=f"allowed here: {', '.join(by_key)}")
    values = {}
    for key, f in by_key.items():
        path = join(where, key)
        if key in document:
            values[f.name] = convert(hints[f.name], document[key], path, f.metadata)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{path} is required", hint=f.metadata.get("doc", "set it"))
    return cls(**values)


def convert(kind: Any, value: object, path: str, bounds: typing.Mapping[str, Any]) -> Any:
    """Check one value against its type and bounds and return it as the dataclass holds it."""
    if dataclasses.is_dataclass(kind):
        return parse(typing.cast(type, kind), value, path)
    origin = typing.get_origin(kind)
    if origin is Literal:
        allowed = typing.get_args(kind)
        if value not in allowed:
            raise ConfigError(f"{path} is {value!r}", hint=f"allowed: {', '.join(map(str, allowed))}")
        return value
    if origin is tuple:
        item = typing.get_args(kind)[0]
        if not isinstance(value, list):
            raise ConfigError(f"{path} must be a list, got {value!r}", hint="write it as [a, b]")
        return tuple(convert(item, v, f"{path}[{i}]", {}) for i, v in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # Helm writes a whole number above 999999 as 1e+06
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(
            f"{path} must be {type_name(kind)}, got {value!r}", hint=bounds.get("doc", "see docs/values.md")
        )
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{path} is {value}, and no finite number", hint=bounds.get("doc", "see docs/values.md"))
    check_bounds(value, path, bounds)
    return value


def check_bounds(value: Any, path: str, bounds: typing.Mapping[str, Any]) -> None:
    """Raise ConfigError where a value lies outside its field's bounds."""
    hint = bounds.get("doc", "")
    if (low := bounds.get("minimum")) is not None and not value >= low:
        raise ConfigError(f"{path} is {value}, the least allowed is {low}", hint=hint)
    if (low := bounds.get("above")) is not None and not value > low:
        raise ConfigError(f"{path} is {value}, it must be greater than {low}", hint=hint)
    if (high := bounds.get("maximum")) is not None and not value <= high:
        raise ConfigError(f"{path} is {value}, the most allowed is {high}", hint=hint)
    if bounds.get("non_empty") and not value:
        raise ConfigError(f"{path} is empty", hint=hint)


def camel(name: str) -> str:
    """``every_steps`` -> ``everySteps``."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def join(where: str, key: str) -> str:
    """Key path below ``where``."""
    return f"{where}.{key}" if where else key


def type_name(kind: Any) -> str:
    """How a person would name the type."""
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(kind, kind.__name__ if isinstance(kind, type | types.GenericAlias) else str(kind))
