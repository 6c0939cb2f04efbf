"""The world that an operator has told this pod of, compared with the one in ``train.yaml``.

The launcher goes by its own settings. Where an operator counts other pods or processes, somebody has changed its object
behind the chart's back, and the group would wait for ever for a pod that nobody makes, or shut one out.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankzero.config import LaunchConfig
from rankzero.errors import ConfigError


def check(environ: Mapping[str, str], launch: LaunchConfig, node_rank: int) -> None:
    """Raise :class:`ConfigError` where a variable of Kubeflow's operators contradicts the settings.

    What is no whole number says nothing: both operators also write `auto` for the processes of a node.
    """
    expected = {
        "PET_NNODES": (launch.nodes, "nodes"),
        "PET_NPROC_PER_NODE": (launch.procs_per_node, "processes per node"),
        "PET_NODE_RANK": (node_rank, "this pod's node rank"),
    }
    for name, (wanted, what) in expected.items():
        told = environ.get(name, "")
        if told.isdecimal() and int(told) != wanted:
            raise ConfigError(
                f"{name} is {told}, but the run's settings say {wanted} ({what})",
                hint="change the group by helm upgrade or a new release, not in the operator's object",
            )
