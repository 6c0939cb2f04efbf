"""What a pod's exit status tells the controller that owns it.

A StatefulSet starts every container again, whatever it ended with. The controllers of the kinds here replace the pod or
end the workload, by the status alone (``contract.POD_ENDS_RUN_GOES_ON`` and below it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from rankzero import contract
from rankzero.launch import volume
from rankzero.launch.identity import kind_of

READ_BY = {"Job", "TrainJob", "PyTorchJob"}
REPLACED = {*contract.POD_ENDS_RUN_GOES_ON, *contract.POD_FAILED}
READ_WITHIN = 5.0
"""Seconds for the volume to say whether there has been an attempt."""
BY_SIGNAL = 128
"""And above: a process that a signal ended, and what a PyTorchJob's operator replaces."""


def of_ended_run(kind: str, code: int) -> int:
    """Status of a pod whose run has ended with ``code``: one after which nobody makes a new pod."""
    if kind in READ_BY and (code in REPLACED or code >= BY_SIGNAL):
        return contract.EXIT_NO_PROGRESS
    return code


def of_pod(kind: str, code: int) -> int:
    """Status of a pod that ends with ``code`` while its run goes on, or that never took part in it."""
    return contract.EXIT_REPLACE if kind == "PyTorchJob" and code in REPLACED else code


def of_error(environ: Mapping[str, str], code: int) -> int:
    """Status of a pod whose launcher ends by an error with ``code``; ``environ`` is what the chart has set.

    The operator of a PyTorchJob has no limit of its own. The launchers count attempts, and the pods of other node
    ranks end with rank 0's wait for them; but before the first attempt nobody counts the pods of node rank 0.
    """
    kind = kind_of(environ.get(contract.ENV_WORKLOAD, ""))
    is_rank0 = all(environ.get(name) == "0" for name in (contract.ENV_NODE_RANK, contract.ENV_FIRST_NODE_RANK))
    if kind == "PyTorchJob" and is_rank0 and code in (contract.EXIT_PREFLIGHT, contract.EXIT_INTERNAL):
        tried = asyncio.run(volume.attempt(lambda: _has_attempts(environ), True, lambda _: None, within=READ_WITHIN))
        if not tried:
            return code
    return of_pod(kind, code)


def _has_attempts(environ: Mapping[str, str]) -> bool:
    root = Path(environ.get(contract.ENV_STATE_ROOT) or contract.STATE_ROOT)
    run = root.joinpath(*(environ.get(name, "") for name in (contract.ENV_RUN_NAME, contract.ENV_RUN_ID)))
    try:
        return any((run / contract.ATTEMPTS_DIR).iterdir())
    except OSError:  # there is no such folder, or no volume
        return False
