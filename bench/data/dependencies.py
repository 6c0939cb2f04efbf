"""What each reader brings into an environment that has PyTorch and NumPy: packages, bytes, seconds to import."""

from __future__ import annotations

import statistics
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

THERE = ("torch", "numpy")
BRINGS = {
    "rankzero": (("obstore", "pyyaml", "prometheus-client"), "rankzero.train.data.from_config"),
    "mosaicml-streaming": (("mosaicml-streaming",), "streaming"),
    "litdata": (("litdata",), "litdata"),
    "webdataset": (("webdataset",), "webdataset"),
    "torchdata": (("torchdata",), "torchdata.stateful_dataloader"),
}
"""Packages that each reader brings with all that they need, and the module that a script imports.

rankzero itself, which is not installed here, is the one package that is not counted.
"""


def of(name: str) -> dict[str, Any]:
    """Packages beyond PyTorch's, the reader's own among them; their size on disk; the median of three imports."""
    packages, module = BRINGS[name]
    there: set[str] = set()
    for known in THERE:
        _add(known, there)
    brought: set[str] = set()
    for package in packages:
        _add(package, brought)
    brought -= there
    return {
        "packages": len(brought),
        "megabytes": round(sum(map(_bytes, brought)) / 1e6, 1),
        "import_s": round(statistics.median(_import_seconds(module) for _ in range(3)), 2),
    }


def _add(package: str, known: set[str]) -> None:
    """Add a package and all that it needs on this machine, without extras."""
    name = canonicalize_name(package)
    if name in known:
        return
    known.add(name)
    for line in distribution(name).requires or []:
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            _add(needed.name, known)


def _bytes(package: str) -> int:
    paths = [Path(str(file.locate())) for file in distribution(package).files or []]
    return sum(path.stat().st_size for path in paths if path.is_file())


def _import_seconds(module: str) -> float:
    """In a process of its own that has imported PyTorch."""
    code = f"import time, torch; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])
