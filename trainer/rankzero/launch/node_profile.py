"""The profile that the playbook left on the node, where the chart mounts it (``network.fromNodeProfile``)."""

from __future__ import annotations

import json
from pathlib import Path

from rankzero import contract
from rankzero.errors import PreflightError


def variables(path: Path = Path(contract.NODE_PROFILE_FILE)) -> dict[str, str]:
    """What NCCL and gloo are told of this node's network; empty without the file.

    Raises :class:`PreflightError` for a file that is not the profile.
    """
    if not path.exists():
        return {}
    try:
        profile = json.loads(path.read_text(encoding="utf-8"))
        interfaces, hcas = ",".join(profile["interfaces"]), ",".join(profile["hcas"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PreflightError(
            f"{path} is not the profile of this node: {error!r}",
            hint="run playbooks/site.yml on the node, or set network.fromNodeProfile to false",
        ) from error
    # The = takes names whole: eth1 alone would be eth10 too.
    found = {"NCCL_SOCKET_IFNAME": f"={interfaces}", "GLOO_SOCKET_IFNAME": interfaces} if interfaces else {}
    return {**found, "NCCL_IB_HCA": f"={hcas}"} if hcas else found
