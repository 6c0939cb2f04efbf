"""The environment of a worker: what torchrun documents, so that scripts written for it run unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch.identity import Identity
from rankzero.launch.protocol import Start

FLIGHT_RECORDS = 2000
"""Collectives that torch's flight recorder remembers."""
FLIGHT_PIPE = "flight-recorder-pipe-"
"""Prefix of the pipes by which NCCL's process group takes orders; torch adds the rank and `.pipe`."""
COLLECTIVE_MARGIN = 300
"""Seconds by which a collective may outlast the watchdog's longest limit."""


def common_environment(base: Mapping[str, str], launch: LaunchConfig) -> dict[str, str]:
    """What every worker of every attempt has in common; the warm spare is started with it too."""
    common = {**base}
    if launch.procs_per_node > 1:  # as torchrun: one thread a process unless the user says otherwise
        common.setdefault("OMP_NUM_THREADS", "1")
    # numpy's own library starts its threads at import, which would make every spare unfit; torch's threads are others.
    common.setdefault("OPENBLAS_NUM_THREADS", "1")
    return common


def worker_environments(
    base: Mapping[str, str], launch: LaunchConfig, identity: Identity, start: Start, interface: str, folder: Path
) -> list[dict[str, str]]:
    """One environment per local rank of this pod for the attempt in ``start``.

    ``folder`` is the attempt's on this node. ``interface`` is set for NCCL and gloo unless ``base`` names one.
    Rank = node rank x processes per node + local rank, as in torchrun.
    """
    world_size = launch.nodes * launch.procs_per_node
    shared = {
        **common_environment(base, launch),
        "MASTER_ADDR": start.master_address,
        "MASTER_PORT": str(start.master_port),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(launch.procs_per_node),
        "GROUP_RANK": str(identity.node_rank),
        "GROUP_WORLD_SIZE": str(launch.nodes),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(world_size),
        "TORCHELASTIC_RUN_ID": f"{identity.run_name}-{identity.run_id}-{start.attempt}",
        "TORCHELASTIC_RESTART_COUNT": str(start.attempt - 1),
        # A restart is a new attempt of the whole group; torch itself restarts nothing.
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        contract.ENV_STATE_DIR: str(identity.state_dir),
        contract.ENV_ATTEMPT: str(start.attempt),
        contract.ENV_ATTEMPT_DIR: str(folder),
        # torch's record of the last collectives. It dumps it at a time-out, or when the launcher writes to its pipe.
        "TORCH_FR_BUFFER_SIZE": str(FLIGHT_RECORDS),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / contract.flight_file()),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / FLIGHT_PIPE),
    }
    if launch.stall.enabled:
        shared[contract.ENV_COLLECTIVE_TIMEOUT] = str(launch.stall.longest + COLLECTIVE_MARGIN)
    if interface:
        shared.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
        shared.setdefault("GLOO_SOCKET_IFNAME", interface)
    return [
        {**shared, **_rank(identity.node_rank * launch.procs_per_node + local, local, folder)}
        for local in range(launch.procs_per_node)
    ]


def _rank(rank: int, local_rank: int, folder: Path) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "ROLE_RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "TORCHELASTIC_ERROR_FILE": str(folder / f"rank-{rank}-error.json"),
    }
