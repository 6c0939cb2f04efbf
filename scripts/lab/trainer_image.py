"""The trainer image of the present code, where the local cluster's nodes pull it."""

from __future__ import annotations

import os

from scripts.image.build import Choices, build_image
from scripts.lab import registry
from scripts.stages import Stages


def provide(stages: Stages) -> str:
    """Build the image and push it, layers that are there already left alone; returns the reference to install.

    ``BASE`` in the environment chooses the base, as for `make build-image`. Raises RankzeroError.
    """
    built = build_image(Choices(engine="podman", base=os.environ.get("BASE") or "auto"), os.environ, stages)
    with stages("Pushing the image"):
        return registry.push(built.reference)
