"""From where the package manager takes packages: the sources that it reads, without those that are switched off."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

from ansible.module_utils.machine.records import read_text

OFF = ("no", "false", "off", "0", "disable")


def uris(paths: list[str], root: Path, word: str) -> dict[str, list[str]]:
    """By file, the URIs in it that have the ``word``. ``paths`` are files and folders of apt's and dnf's sources."""
    found = {}
    for file in (file for path in paths for file in _files(root / path.lstrip("/"))):
        named = [uri for uri in READERS[file.suffix](read_text(file) or "") if word in uri]
        if named:
            found[f"/{file.relative_to(root)}"] = named
    return found


def _files(path: Path) -> list[Path]:
    """Neither apt nor dnf reads a file with another ending, such as what an upgrade of the system leaves (.save)."""
    return sorted(file for file in (path, *path.glob("*")) if file.is_file() and file.suffix in READERS)


def _of_list(text: str) -> Iterator[str]:
    for line in text.splitlines():
        entry = re.match(r"\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)", line)
        if entry:
            yield entry[1]


def _of_stanzas(text: str) -> Iterator[str]:
    uncommented = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", uncommented):
        # A line that begins with a blank goes on with the field before it.
        fields = dict(re.findall(r"^([\w-]+):[ \t]*((?:.*(?:\n[ \t]+.*)*))", stanza, re.MULTILINE))
        told = {name.lower(): value.split() for name, value in fields.items()}
        if (told.get("enabled") or ["yes"])[0].lower() not in OFF:
            yield from told.get("uris", [])


def _of_repositories(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:  # dnf passes over it as well
        return
    for section in parser.sections():
        if parser[section].get("enabled", "1").lower() not in OFF:
            yield from parser[section].get("baseurl", "").split()


READERS = {".list": _of_list, ".sources": _of_stanzas, ".repo": _of_repositories}
"""By the ending of a file's name; apt and dnf read no other."""
