"""Who this pod is: what the chart tells the launcher through the environment."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankzero import contract
from rankzero.errors import ConfigError


@dataclass(frozen=True)
class Identity:
    """One pod of one run.

    ``grace_seconds`` lie between SIGTERM and SIGKILL of the pod; None outside Kubernetes, where nobody counts them.
    ``boot`` is new with every start of the launcher: the same pod with another ``boot`` has lost its workers.
    """

    run_name: str
    run_id: str
    namespace: str
    workload: str
    rank0_host: str
    node_rank: int
    state_root: Path
    pod_name: str
    pod_uid: str
    pod_ip: str
    node_name: str
    config_hash: str
    grace_seconds: int | None = None
    boot: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def kind(self) -> str:
        """Kind of the object that owns the pod; empty outside Kubernetes."""
        return kind_of(self.workload)

    @property
    def restarts_in_place(self) -> bool:
        """Whether a container that ends is started again in the same pod; the other kinds make a new pod or none."""
        return self.kind in {"", "StatefulSet"}

    @property
    def state_dir(self) -> Path:
        """The run's folder on the checkpoint volume."""
        return self.state_root / self.run_name / self.run_id

    @property
    def run_key(self) -> str:
        """Members of another run that reach this coordinator by mistake differ in this."""
        return f"{self.namespace}/{self.run_name}/{self.run_id}"


def kind_of(workload: str) -> str:
    """Kind of a workload as :data:`contract.ENV_WORKLOAD` names it."""
    return workload.partition("/")[0]


def from_environment(environ: Mapping[str, str], *, nodes: int) -> Identity:
    """Read the chart's variables.

    Outside Kubernetes a single node needs none of them. Raises :class:`ConfigError` for a node rank that is
    missing or outside 0..nodes-1, for a run name or id that is not one path component and for a grace that is no
    whole number.
    """
    host = socket.gethostname()
    if nodes > 1 and not environ.get(contract.ENV_POD_IP):
        raise ConfigError(
            f"{contract.ENV_POD_IP} is not set and the run has {nodes} nodes",
            hint="the chart fills it from the pod's status; elsewhere set it to this machine's address",
        )
    return Identity(
        run_name=_component(environ, contract.ENV_RUN_NAME, "local"),
        run_id=_component(environ, contract.ENV_RUN_ID, "main"),
        namespace=environ.get(contract.ENV_NAMESPACE, ""),
        workload=environ.get(contract.ENV_WORKLOAD, ""),
        rank0_host=environ.get(contract.ENV_RANK0_HOST) or "localhost",
        node_rank=_node_rank(environ, nodes),
        state_root=Path(environ.get(contract.ENV_STATE_ROOT) or contract.STATE_ROOT),
        pod_name=environ.get(contract.ENV_POD_NAME) or host,
        pod_uid=environ.get(contract.ENV_POD_UID) or host,
        pod_ip=environ.get(contract.ENV_POD_IP) or "127.0.0.1",
        node_name=environ.get(contract.ENV_NODE_NAME) or host,
        config_hash=environ.get(contract.ENV_CONFIG_HASH, ""),
        grace_seconds=_grace_seconds(environ),
    )


def _component(environ: Mapping[str, str], name: str, default: str) -> str:
    value = environ.get(name) or default
    if "/" in value or value in {".", ".."}:
        raise ConfigError(f"{name} is {value!r}", hint="it names a folder: use letters, digits, '-' and '.'")
    return value


def _node_rank(environ: Mapping[str, str], nodes: int) -> int:
    text = environ.get(contract.ENV_NODE_RANK, "")
    first = environ.get(contract.ENV_FIRST_NODE_RANK) or "0"
    if not text:
        if nodes == 1:
            return 0
        raise ConfigError(
            f"{contract.ENV_NODE_RANK} is not set and the run has {nodes} nodes",
            hint="the chart fills it from the pod's index; Kubernetes before 1.28 does not label pods with it",
        )
    if not (text.isdecimal() and first.isdecimal() and int(first) + int(text) < nodes):
        after = f" after {contract.ENV_FIRST_NODE_RANK} {first!r}" if first != "0" else ""
        raise ConfigError(
            f"{contract.ENV_NODE_RANK} is {text!r}{after}",
            hint=f"together a whole number from 0 to {nodes - 1}: the run has {nodes} nodes",
        )
    return int(first) + int(text)


def _grace_seconds(environ: Mapping[str, str]) -> int | None:
    text = environ.get(contract.ENV_GRACE_SECONDS, "")
    if not text:
        return None
    if not text.isdecimal():
        raise ConfigError(
            f"{contract.ENV_GRACE_SECONDS} is {text!r}",
            hint="a whole number of seconds; the chart fills it from terminationGracePeriodSeconds",
        )
    return int(text)
