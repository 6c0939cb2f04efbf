"""Helm, as the generators and the chart's tests call it: the pinned program, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts import command
from scripts.generate import files
from scripts.lab import programs

NAMESPACE = "research"
"""Any but `default`: a rendering that is right here has no literal namespace in it."""

NO_CLUSTER = {"KUBECONFIG": "/dev/null"}


def program() -> Path:
    """The pinned helm, built first where that has not happened yet."""
    if not programs.folder("helm").is_dir():
        programs.build("helm")
    return programs.program("helm", "helm")


def helm(*arguments: str | Path) -> str:
    """Run helm and return its standard output; raises :class:`~scripts.command.CommandError` with what it said."""
    return command.run([program(), *arguments], env=NO_CLUSTER)


def template(release: str, values: Path, extra: Sequence[str] = ()) -> str:
    """All objects of a release as YAML documents."""
    return helm("template", release, files.CHART, "--namespace", NAMESPACE, "--values", values, *extra)
