"""What Kueue lets nobody change of an object that waits in, or was admitted by, one of its queues.

From the validation of its webhooks (v0.17), which compare what a quota and a place were given for; tests/lab asks a
real one whether it agrees.
"""

from __future__ import annotations

import re
from typing import Any

from rankzero import contract

KEPT = re.compile(
    r"""spec\.( replicas
    | template\.spec\.( (nodeSelector|affinity|tolerations|runtimeClassName|topologySpreadConstraints)([.\[].*)?
    | (containers|initContainers)(\[[^]]*\](\.(resources\.requests|ports)([.\[].*)?)?)? ) )""",
    re.VERBOSE,
)
"""Fields of a StatefulSet: its size, and of its pods where they may go, what they ask for, and their ports."""
LABEL = f"metadata.labels.{contract.LABEL_QUEUE}"


def is_queued(thing: dict[str, Any]) -> bool:
    """Whether its pods wait for a quota."""
    return contract.LABEL_QUEUE in thing["metadata"].get("labels", {})


def keeps(path: str, thing: dict[str, Any]) -> bool:
    """Whether Kueue refuses another value at ``path`` of ``thing``, as it is to be, while its pods run."""
    if path == LABEL:
        return True
    return thing["kind"] == "StatefulSet" and is_queued(thing) and KEPT.fullmatch(path) is not None
