"""What a pod's exit status tells the controller that owns it.

A StatefulSet starts every container again, whatever it ended with. The controllers of the kinds here replace the pod or
end the workload, by the status alone (``contract.POD_ENDS_RUN_GOES_ON`` and below it).
"""

from __future__ import annotations

from rankzero import contract

READ_BY = {"Job", "TrainJob", "PyTorchJob"}
REPLACED = {*contract.POD_ENDS_RUN_GOES_ON, *contract.POD_FAILED}
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
