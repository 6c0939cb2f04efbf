"""What is applied for an operator: its makers' own manifests, with the little that is different here."""

from __future__ import annotations

import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import yaml

from scripts.lab import images, programs
from scripts.lab.kube import kubectl
from scripts.lab.operators.catalogue import Operator

COMMON = Path(__file__).with_name("common")
UPSTREAM = "upstream"
"""How an operator's kustomization names the folder of its makers."""
Object = dict[str, Any]


def objects(operator: Operator) -> list[Object]:
    """All objects of an operator that has been built, in the order in which they are to be applied."""
    names = {
        "IMAGE": operator.image.reference,
        "PROGRAM": operator.program,
        "VERSION": operator.version,
        "TOOLBOX": images.toolbox_reference(),
    }
    with tempfile.TemporaryDirectory(prefix=f"{operator.name}-") as folder:
        for source in (COMMON, operator.folder):
            target = Path(folder, source.name)
            target.mkdir()
            for file in source.glob("*.yaml"):
                text = string.Template(file.read_text(encoding="utf-8")).substitute(names)
                (target / file.name).write_text(text, encoding="utf-8")
        if operator.manifests:
            # kustomize reads nothing outside the folder that it is given.
            kept = programs.folder(operator.family) / operator.manifests
            shutil.copytree(kept, Path(folder, UPSTREAM))
        text = kubectl("kustomize", str(Path(folder, operator.name)))
    # The parser in C: definitions of custom resources are tens of thousands of lines.
    return [one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """Those of one kind."""
    return [one for one in objects if one["kind"] == kind]
