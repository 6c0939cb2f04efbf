"""Command line of the image build. The reference goes to standard output, progress to standard error."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence

from scripts.entry import guarded
from scripts.image.build import Choices, build_image
from scripts.stages import Stages


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[Choices, bool]:
    """The choices, and whether the result is wanted as JSON. A flag wins over its environment variable."""
    default = Choices()
    parser = argparse.ArgumentParser(
        prog="python -m scripts.image",
        description="Build the trainer image. The variables in brackets are what `make build-image` takes.",
    )
    parser.add_argument(
        "--engine",
        default=environ.get("ENGINE") or default.engine,
        help="podman, docker or buildah; the first that answers if left out [ENGINE]",
    )
    parser.add_argument(
        "--base",
        default=environ.get("BASE") or default.base,
        help="production (the pinned PyTorch image, the default), local (a stand-in without GPU parts, from package "
        "registries), auto (production if its registry answers within 10 s, else local), or an image of yours [BASE]",
    )
    parser.add_argument(
        "--repository",
        default=environ.get("IMAGE_REPOSITORY") or default.repository,
        help=f"name without the tag; {default.repository} if left out [IMAGE_REPOSITORY]",
    )
    parser.add_argument(
        "--tag",
        default=environ.get("TAG") or default.tag,
        help="version and git revision if left out; `latest` is refused [TAG]",
    )
    parser.add_argument(
        "--extras",
        default=environ.get("EXTRAS") or "",
        help="packages that train.progress can report to, `wandb`, `mlflow` or both; none if left out [EXTRAS]",
    )
    parser.add_argument("--push", action="store_true", help="upload the image afterwards")
    parser.add_argument("-o", "--output", choices=("name", "json"), default="name", help="form of the result")
    options = parser.parse_args(arguments)
    extras = tuple(options.extras.replace(",", " ").split())
    choices = Choices(options.engine, options.base, options.repository, options.tag, options.push, extras)
    return choices, options.output == "json"


def main() -> int:
    """Build, print the result, and return the exit status."""
    choices, as_json = parse(sys.argv[1:], os.environ)
    image = build_image(choices, os.environ, Stages())
    sys.stdout.write((json.dumps(dataclasses.asdict(image)) if as_json else image.reference) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
