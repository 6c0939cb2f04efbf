"""The trainer image of the present code, where the local cluster's nodes pull it."""

from __future__ import annotations

import os

from scripts.image.build import Choices, build_image
from scripts.lab import registry
from scripts.lab.podman import execute
from scripts.lab.settings import WORKERS
from scripts.stages import Stages


def provide(stages: Stages) -> str:
    """Build the image and push it, layers that are there already left alone; returns the reference to install.

    ``BASE`` in the environment chooses the base, as for `make build-image`. Raises RankzeroError.
    """
    built = build_image(Choices(engine="podman", base=os.environ.get("BASE") or "auto"), os.environ, stages)
    with stages("Pushing the image"):
        return registry.push(built.reference)


def provide_on_nodes(stages: Stages) -> str:
    """:func:`provide` it and have it on every worker, for those who measure what comes after the pull."""
    reference = provide(stages)
    with stages("Pulling it onto the nodes"):
        for node in WORKERS:
            execute(node.name, "crictl", "pull", reference)
    return reference
