"""Reading the small files of /proc and /sys. What is not there or does not answer is empty, never an error."""

from __future__ import annotations

import re
from pathlib import Path

PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def text(path: Path) -> str:
    """The text of a file without white space around it; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """The number in a file; None where there is none."""
    try:
        return int(text(path))
    except ValueError:
        return None


def node_number(path: Path) -> int | None:
    """The NUMA node that a file names; the kernel writes -1 for a device that has none."""
    node = number(path)
    return None if node is None or node < 0 else node


def entries(folder: Path) -> list[Path]:
    """What a folder holds, by name; nothing where it is not there."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def link_name(link: Path) -> str | None:
    """The last part of what a link points to; None where there is no link."""
    try:
        return link.resolve().name if link.is_symlink() else None
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return None


def number_list(words: str) -> list[int]:
    """The numbers in a list as the kernel writes it, such as ``0-3,8``."""
    numbers: list[int] = []
    for part in words.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal():
            numbers += range(int(first), int(last if last.isdecimal() else first) + 1)
    return numbers


def pci_path(device: Path) -> list[str]:
    """PCI addresses on the way from the root complex to a device of /sys, its own last; empty for none.

    Devices that hang below a PCI function, as virtio's do, have the function's address last.
    """
    try:
        parts = device.resolve().parts
    except (OSError, RuntimeError):
        return []
    return [part for part in parts if PCI_ADDRESS.fullmatch(part)]
