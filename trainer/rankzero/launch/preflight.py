"""What the pod itself can check before it takes part: script, volume, network, shared memory."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import tempfile
from pathlib import Path

from rankzero import contract
from rankzero.config import RunConfig
from rankzero.errors import ConfigError, PreflightError
from rankzero.launch import fabric
from rankzero.launch.identity import Identity

SHM = "/dev/shm"  # noqa: S108 -- not a temporary file of ours
DEFAULT_SHM = 64 * 2**20
"""Bytes of /dev/shm where nobody asked for more; data loader workers die of it with a bus error."""
LEAST_FILES = 4096
"""Open files below which groups run into the limit: systemd grants 1024 where nobody says otherwise."""


def check(config: RunConfig, identity: Identity) -> list[str]:
    """Raise for what makes training impossible; return warnings for what makes it fragile.

    Raises :class:`ConfigError` where the script or program is missing and :class:`PreflightError` where the checkpoint
    volume is missing or not writable, or the network is not what ``network`` in the chart's values says.
    """
    _check_program(config)
    _check_volume(identity)
    _check_interfaces(os.environ.get("GLOO_SOCKET_IFNAME", ""))
    return [*_fabric_warnings(config), *_warnings(), *_grace_warnings(config, identity)]


def _check_program(config: RunConfig) -> None:
    if config.launch.command:
        program = config.launch.command[0]
        if shutil.which(program) is None:
            raise ConfigError(
                f"launch.command: {program} is no program in this pod",
                hint="give a name on the PATH or a path inside the image or on a mounted volume",
            )
        return
    script = Path(config.launch.script)
    if not script.is_file() or not os.access(script, os.R_OK):
        raise ConfigError(
            f"launch.script: {script} is not a readable file in this pod",
            hint="give the path inside the image or on a mounted volume",
        )


def _check_volume(identity: Identity) -> None:
    folder = identity.state_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(64 * 1024))  # an empty file fits on a full volume, a record does not
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise PreflightError(
            f"cannot write to the checkpoint volume at {folder}: {error.strerror}",
            hint=f"it must be mounted at {identity.state_root} and writable for uid {os.getuid()}, gid {os.getgid()} "
            "(fsGroup, or the rights on the NFS export)",
        ) from error


def _check_interfaces(asked: str) -> None:
    """Both NCCL and gloo would say only that they found no interface, after all ranks have started."""
    present = [name for _, name in socket.if_nameindex()]
    if missing := [name for name in asked.split(",") if name and name not in present]:
        who, hint = "network.interface", "leave it empty: the launcher takes the interface that leads to rank 0"
        if Path(contract.NODE_PROFILE_FILE).exists():
            who, hint = "this node's profile", "run playbooks/site.yml again, or set network.fromNodeProfile to false"
        raise PreflightError(
            f"{who} names {', '.join(missing)}, which this pod does not have: it has {', '.join(present)}", hint=hint
        )


def _fabric_warnings(config: RunConfig) -> list[str]:
    """Raise for them where the fabric is required."""
    promised = config.launch.fabric
    found = fabric.problems(promised)
    if found and promised.required:
        raise PreflightError(
            f"network.fabric.required is true, and this pod cannot use the fabric: {'; '.join(found)}",
            hint="mend that, or set network.fabric.required to false to train over TCP",
        )
    return [f"NCCL will not use the fabric: {problem}" for problem in found]


def _warnings() -> list[str]:
    return [*_shm_warnings(), *_file_warnings()]


def _file_warnings() -> list[str]:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files >= LEAST_FILES or files == resource.RLIM_INFINITY:
        return []
    return [
        f"this pod may open only {files} files and connections: many ranks and data loader workers need more; no value "
        "of a pod sets it, the container runtime of the nodes does (LimitNOFILE, as the role container_runtime sets it)"
    ]


def _shm_warnings() -> list[str]:
    try:
        shm = os.statvfs(SHM)
    except OSError:
        return [f"{SHM} is missing: data loader workers and NCCL need it; the chart mounts it"]
    size = shm.f_frsize * shm.f_blocks
    if size <= DEFAULT_SHM:
        return [f"{SHM} has only {size // 2**20} MiB: data loader workers die with a bus error; set shm.size"]
    return []


def _grace_warnings(config: RunConfig, identity: Identity) -> list[str]:
    """The chart refuses it; a pod that somebody patched, or made without the chart, has only this."""
    wanted = config.launch.save_timeout + config.launch.stop_timeout + contract.LEAVE_MARGIN
    grace = identity.grace_seconds
    if grace is None or grace >= wanted:
        return []
    return [
        f"this pod is killed {grace} s after SIGTERM, but saving and stopping may take {wanted} s (launch.saveTimeout, "
        f"launch.stopTimeout and {contract.LEAVE_MARGIN} s): set terminationGracePeriodSeconds to {wanted}"
    ]
