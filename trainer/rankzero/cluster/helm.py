"""Releases as Helm knows them.

Helm itself is asked, not its Secrets: it owns their format, it may keep its records elsewhere (``HELM_DRIVER``), and
only it can say what an upgrade would make. Whoever upgrades a release has it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from rankzero.errors import HelmError

WITHIN = 120.0
"""Seconds for one call; an upgrade that is only tried may fetch its chart from a registry."""

DEPLOYED = "deployed"
"""What Helm calls the revision whose objects are in the cluster."""
UNINSTALLED = "uninstalled"
"""The last one of a release that was taken out with `--keep-history`."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Release:
    """One state of a release: ``values`` with the chart's defaults in them, ``objects`` as they were rendered.

    ``given`` are the values without the defaults.
    """

    name: str
    title: str
    chart: str
    given: Document
    values: Document
    objects: list[Document]


def installed(name: str, namespace: str, revision: int = 0) -> Release:
    """A release as it is, or as it was at a revision. Needs ``get`` and ``list`` of the namespace's Secrets.

    Raises :class:`HelmError` where there is none or the API refuses.
    """
    where = [name, *_namespace(namespace), "--revision", str(revision or _deployed(name, namespace))]
    about = json.loads(_helm("get", "metadata", *where, "--output", "json"))
    given, values = (
        json.loads(_helm("get", "values", *where, *options, "--output", "json")) or {} for options in ([], ["--all"])
    )
    objects = _objects(_helm("get", "manifest", *where))
    return Release(name, f"{name}, revision {about['revision']}", _chart(about), given, values, objects)


def upgraded(name: str, namespace: str, chart: str, options: Sequence[str]) -> Release:
    """A release as ``helm upgrade NAME CHART OPTIONS`` would make it; nothing is changed.

    Raises :class:`HelmError` with Helm's own words where it would refuse the values.
    """
    words = ["upgrade", name, chart, *_namespace(namespace), *options, "--dry-run=server", "--output", "json"]
    made = json.loads(_helm(*words))
    given = made.get("config") or {}
    values = overlaid(made["chart"]["values"] or {}, given)
    chart_, objects = _chart(made["chart"]["metadata"]), _objects(made["manifest"])
    return Release(name, f"{name} after the upgrade", chart_, given, values, objects)


def _deployed(name: str, namespace: str) -> int:
    """The revision that runs: not the newest one where that was refused. The newest where none runs."""
    history = json.loads(_helm("history", name, *_namespace(namespace), "--output", "json"))
    if history[-1]["status"] == UNINSTALLED:
        raise HelmError(f"{name} is uninstalled", hint=f"name a revision of it, {name}@{history[-1]['revision']} say")
    running = [one["revision"] for one in history if one["status"] == DEPLOYED]
    return int(max(running or [one["revision"] for one in history]))


def _chart(metadata: Document) -> str:
    """``helm get metadata`` and Chart.yaml spell the chart's name differently."""
    return f"{metadata.get('chart') or metadata['name']} {metadata['version']}"


def _namespace(namespace: str) -> list[str]:
    return ["--namespace", namespace] if namespace else []


def _objects(manifest: str) -> list[Document]:
    return [found for found in yaml.safe_load_all(manifest) if found]


def overlaid(defaults: Document, values: Document) -> Document:
    """Values over the chart's defaults; as in Helm, null takes a default away."""
    both = dict(defaults)
    for key, value in values.items():
        if value is None:
            both.pop(key, None)
        elif isinstance(value, dict) and isinstance(both.get(key), dict):
            both[key] = overlaid(both[key], value)
        else:
            both[key] = value
    return both


def _helm(*words: str) -> str:
    try:
        done = subprocess.run(["helm", *words], capture_output=True, text=True, timeout=WITHIN, check=False)
    except FileNotFoundError as error:
        raise HelmError("helm is not on the PATH", hint="install Helm 3.14 or newer") from error
    except subprocess.TimeoutExpired as error:
        raise HelmError(f"`helm {words[0]}` did not end within {WITHIN:g} s", hint="try `helm list`") from error
    if done.returncode:
        command = " ".join(words[: 3 if words[0] == "get" else 2])
        raise HelmError(f"`helm {command}`: {done.stderr.strip()}", hint=_hint(done.stderr))
    return done.stdout


def _hint(said: str) -> str:
    if "forbidden" in said:
        return "Helm keeps releases in Secrets: you need get and list of them, see `kubectl auth can-i list secrets`"
    if "another operation" in said:
        return (
            "another helm is at work, or was killed: `helm history` shows which revision is pending; where nobody is, "
            "`helm rollback` undoes a pending upgrade, `helm uninstall` a pending install (the checkpoints stay)"
        )
    if "not found" in said:
        return "see `helm list --all-namespaces`, and `helm history` for revisions"
    return ""
