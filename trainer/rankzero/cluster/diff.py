"""``rankzero diff``: what differs between two experiments, or what an upgrade would change and at which price."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from rankzero import contract
from rankzero.cluster import helm
from rankzero.cluster.effects import Effect, effects, is_settings
from rankzero.cluster.helm import Document, Release
from rankzero.cluster.paths import ABSENT, differences
from rankzero.errors import ConfigError

FIELDS_SHOWN = 6
LONGEST = 100
"""Characters of one value."""


def show(first: str, second: str, namespace: str, chart: str, options: Sequence[str], *, as_json: bool) -> int:
    """Print what differs and return one of contract's DIFF_ statuses.

    ``first`` and ``second`` are ``RELEASE`` or ``RELEASE@REVISION``. Without ``second`` the first is compared with
    what ``helm upgrade`` would make of it with ``chart`` and ``options``.

    Raises :class:`HelmError`, and :class:`ConfigError` for names that cannot be compared.
    """
    name, revision = _parsed(first)
    if second:
        other = _parsed(second)
        before, after = helm.installed(name, namespace, revision), helm.installed(other[0], namespace, other[1])
    elif revision:
        raise ConfigError(
            f"{first} is a revision, which nobody can upgrade", hint="name the release alone, or another one"
        )
    else:
        before, after = helm.installed(name, namespace), helm.upgraded(name, namespace, chart, options)
    document = compare(before, after)
    sys.stdout.write((json.dumps(document) if as_json else "\n".join(lines(document))) + "\n")
    return status(document)


def compare(before: Release, after: Release) -> Document:
    """All that differs. Effects are those of going from one to the other, so two releases have none."""
    given = helm.overlaid(before.given, after.given)
    values = _pairs(_part(before.values, given), _part(after.values, given))
    all_values = [one["key"] for one in _pairs(before.values, after.values)]
    known = {one["key"] for one in values}
    settings = [one for one in _pairs(_settings(before), _settings(after)) if one["key"] not in known]
    changes = effects(before.objects, after.objects) if before.name == after.name else []
    return {
        "from": {"title": before.title, "chart": before.chart},
        "to": {"title": after.title, "chart": after.chart},
        "is_one_release": before.name == after.name,
        "values": values,
        "defaults": [key for key in all_values if key not in known],
        "image": _pairs(_images(before), _images(after)),
        "settings": settings,
        "effects": [
            {"effect": str(one.effect), "object": one.target, "fields": list(one.fields), "advice": one.advice}
            for one in changes
        ],
    }


def status(document: Document) -> int:
    """The exit status for a comparison."""
    if any(one["effect"] in {Effect.LOSS, Effect.REFUSED, Effect.IGNORED} for one in document["effects"]):
        return contract.EXIT_NOT_BY_UPGRADE
    parts = ("values", "defaults", "image", "settings", "effects")
    differs = any(document[part] for part in parts) or document["from"]["chart"] != document["to"]["chart"]
    return contract.EXIT_DIFFERENT if differs else contract.EXIT_OK


def lines(document: Document) -> list[str]:
    """The comparison for a person."""
    before, after = document["from"], document["to"]
    said = [f"{before['title']} ({before['chart']}) -> {after['title']} ({after['chart']})"]
    if status(document) == contract.EXIT_OK:
        return [*said, "  nothing differs"]
    for part, heading in (
        ("values", "values"),
        ("image", "images"),
        ("settings", f"in {contract.CONFIG_FILE}, from these values"),
    ):
        if document[part]:
            said += [
                heading,
                *(f"  {one['key']}: {_told(one, 'from')} -> {_told(one, 'to')}" for one in document[part]),
            ]
    if document["defaults"]:
        said.append(f"defaults of the chart: {_some(document['defaults'])}")
    if document["is_one_release"]:
        said += ["what it does", *(_effect(one) for one in document["effects"])]
        if not document["effects"]:
            said.append("  nothing: all objects stay as they are")
    return said


def _effect(one: Document) -> str:
    fields = [re.sub(r"^spec\.(template\.(spec\.)?)?", "", field) for field in one["fields"]]
    where = f" ({_some(fields)})" if fields else ""
    return f"  {one['effect']}: {one['object']}{where}" + (f"; {one['advice']}" if one["advice"] else "")


def _some(names: Sequence[str]) -> str:
    """The first few."""
    more = len(names) - FIELDS_SHOWN
    return ", ".join([*names[:FIELDS_SHOWN], *([f"{more} more"] if more > 0 else [])])


def _part(values: Any, given: Any) -> Any:
    """Of the values those that were given; the others are the chart's own."""
    if not isinstance(values, dict) or not isinstance(given, dict):
        return values
    return {key: _part(values[key], below) for key, below in given.items() if key in values}


def _parsed(text: str) -> tuple[str, int]:
    """Name and revision; 0 is the present one."""
    name, at, revision = text.partition("@")
    if at and not revision.isdecimal():
        raise ConfigError(f"{text} names no revision", hint="write RELEASE@NUMBER, see `helm history RELEASE`")
    return name, int(revision or 0)


def _settings(release: Release) -> Document:
    """What the launcher and the script get to read."""
    found = (one["data"][contract.CONFIG_FILE] for one in release.objects if is_settings(one))
    return yaml.safe_load(next(found, "{}")) or {}


def _images(release: Release) -> dict[str, str]:
    """Every container's image, by the container's name."""
    return {one["name"]: one["image"] for thing in release.objects for one in _containers(thing)}


def _containers(document: Any) -> list[Document]:
    """All that look like containers, wherever the workload's kind keeps its pod template."""
    if isinstance(document, dict):
        own = [document] if isinstance(document.get("image"), str) and "name" in document else []
        return own + [one for below in document.values() for one in _containers(below)]
    if isinstance(document, list):
        return [one for below in document for one in _containers(below)]
    return []


def _pairs(old: Document, new: Document) -> list[Document]:
    """JSON has no word for what is absent: the key is left out."""
    found = []
    for key, before, after in differences(old, new):
        sides = {"from": before, "to": after}
        found.append({"key": key, **{side: value for side, value in sides.items() if value is not ABSENT}})
    return found


def _told(one: Document, side: str) -> str:
    if side not in one:
        return "not set"
    text = json.dumps(one[side], ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
