"""Compile the modules that have no bytecode yet, so that no pod compiles them at its start.

Usage: ``python compile_bytecode.py FOLDER...``

Existing bytecode is left alone: replacing it would store it a second time, in a layer above a base that is
already compiled. Hash-based and unchecked, because a copied file may change its time, and a read-only pod could not
write fresh bytecode anyway. A file that is not valid for this Python (templates, samples for later versions) is
skipped, as installers do. Runs on the standard library alone.
"""

import argparse
import importlib.util
import os
import py_compile
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


def without_bytecode(folders: Iterable[Path]) -> Iterator[Path]:
    """Every module below ``folders`` that this Python would have to compile on import."""
    for folder in folders:
        for module in folder.rglob("*.py"):
            if not Path(importlib.util.cache_from_source(str(module))).exists():
                yield module


def compiles(module: Path) -> bool:
    """Write the bytecode of ``module``; False where it is no valid Python."""
    try:
        py_compile.compile(str(module), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except (py_compile.PyCompileError, UnicodeDecodeError, ValueError):
        return False
    return True


def main() -> None:
    """Compile everything below the folders of the command line and say how many files that were."""
    parser = argparse.ArgumentParser(description="Compile the modules that have no bytecode yet.")
    parser.add_argument("folders", nargs="+", type=Path)
    modules = sorted(without_bytecode(parser.parse_args().folders))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        written = sum(pool.map(compiles, modules, chunksize=50))
    print(f"compiled {written} modules, skipped {len(modules) - written}")  # noqa: T201 -- a build's log


if __name__ == "__main__":
    main()
