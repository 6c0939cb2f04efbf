"""The storage class `shared`: ReadWriteMany volumes that every node mounts, made on demand."""

from __future__ import annotations

import string
from pathlib import Path

from scripts.lab import images
from scripts.lab.kube import kubectl
from scripts.lab.settings import SHARED_PATH, STORAGE_CLASS

MANIFEST = Path(__file__).parent / "storage.yaml"


def manifest() -> str:
    """The provisioner and its storage class, as YAML."""
    return string.Template(MANIFEST.read_text(encoding="utf-8")).substitute(
        SHARED_PATH=SHARED_PATH,
        STORAGE_CLASS=STORAGE_CLASS,
        TOOLBOX=images.toolbox_reference(),
        PROVISIONER=images.provisioner_reference(),
    )


def install() -> None:
    """Apply the provisioner and wait until it runs."""
    kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=manifest())
    kubectl("--namespace", "local-path-storage", "rollout", "status", "deployment", "--timeout", "120s")
