"""Which kernel boots next: what GRUB's menu and its saved choice say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from . import files

FOLDERS = ("boot/grub", "boot/grub2")
"""Debian's and Red Hat's."""


def next_kernel(root: Path, releases: Sequence[str]) -> str | None:
    """The one of the bootable ``releases`` (newest first) that boots next; None where nothing tells it for certain.

    The newest is not always it: a choice may be saved (``grub-set-default``, ``grubby``) or made for one boot
    (``grub-reboot``), and menus may prefer a flavour.
    """
    if len(releases) == 1:
        return releases[0]
    for folder in (root / name for name in FOLDERS):
        menu = files.text(folder / "grub.cfg")
        if not menu:
            continue
        saved = dict(re.findall(r"^(next_entry|saved_entry)=(.+)$", files.text(folder / "grubenv"), re.MULTILINE))
        entry = saved.get("next_entry") or _default(menu).replace("${saved_entry}", saved.get("saved_entry", ""))
        return _release(entry, menu, releases)
    return None


def _default(menu: str) -> str:
    """The entry that the menu takes by itself. Without a saved choice GRUB takes the first."""
    defaults = re.findall(r'^\s*set default="(.*)"\s*$', menu, re.MULTILINE)
    return next((entry for entry in defaults if entry != "${next_entry}"), "0")


def _release(entry: str, menu: str, releases: Sequence[str]) -> str | None:
    """The kernel of an entry, which is a number, a title or an id; of nested ones all, with > in between."""
    if entry in ("", "0"):
        first = re.search(r"^\s*linux(?:efi|16)?\s+\S*/vmlinuz-(\S+)", menu, re.MULTILINE)
        if first:
            return first[1] if first[1] in releases else None
        # Red Hat's menu is made at boot of the files in /boot/loader/entries, the newest first.
        return next(iter(releases), None) if re.search(r"^\s*blscfg\b", menu, re.MULTILINE) else None
    named = [name for name in releases if re.search(rf"(?<![\w.]){re.escape(name)}(?![.\d])", entry)]
    return max(named, key=len, default=None)
