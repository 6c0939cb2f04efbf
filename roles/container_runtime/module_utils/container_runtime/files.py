"""The files that say how containers are run: containerd's own, and those with which K3s and RKE2 make theirs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ansible.module_utils.machine.records import read_text

CONFIG = "/etc/containerd/config.toml"
IMPORTS = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[(.*?)\]", re.MULTILINE | re.DOTALL)


def texts(paths: list[str], root: Path) -> dict[str, str]:
    """The content of those of ``paths`` that are there."""
    found = {path: read_text(root / path.lstrip("/")) for path in paths}
    return {path: content for path, content in found.items() if content is not None}


def config_path(process: str, root: Path) -> str:
    """The main file of the containerd that runs, by its command line."""
    words: list[str] = (read_text(root / "proc" / process / "cmdline") or "").split("\0")
    for index, word in enumerate(words[:-1]):
        if word in ("--config", "-c", "-config"):
            return words[index + 1]
        if word.startswith("--config="):
            return word.partition("=")[2]
    return CONFIG


def config_files(path: str, root: Path) -> list[dict[str, str]]:
    """The main file and those that it imports, ``path``, ``text`` and ``mode``, in the order in which they are read.

    Nodes may lack a TOML reader. An array of strings is simple enough to find; what is made of the files is decided
    where there is one.
    """
    found: list[dict[str, str]] = []
    pending = [path]
    while pending:
        path, *pending = pending
        content = read_text(root / path.lstrip("/"))
        if content is None or path in [file["path"] for file in found]:
            continue
        mode = (root / path.lstrip("/")).stat().st_mode & 0o7777
        found.append({"path": path, "text": content, "mode": f"{mode:04o}"})
        pending += _imports(path, content, root)
    return found


def _imports(path: str, content: str, root: Path) -> list[str]:
    found = IMPORTS.search(re.sub(r"^[ \t]*#.*$", "", content, flags=re.MULTILINE))
    patterns = re.findall(r"\"([^\"\n]*)\"|'([^'\n]*)'", found[1]) if found else []
    imported: list[str] = []
    for pattern in (one or other for one, other in patterns):
        absolute = os.path.normpath(Path(path).parent / pattern)
        if "*" in pattern:
            matches = sorted(root.glob(absolute.lstrip("/")))
            imported += [f"/{match.relative_to(root)}" for match in matches]
        else:
            imported.append(absolute)
    return imported
