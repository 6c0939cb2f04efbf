"""Filters over what the role machine has read. Pure functions of their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""How far apart two devices are, as nvidia-smi calls it, the nearest first."""

UNDERLINE = re.compile(r"\x1b\[\d*m")
"""nvidia-smi underlines the heading even where nobody sees it."""


def topology(text: str) -> dict[str, dict[str, Any]]:
    """The matrix that ``nvidia-smi topo -m`` prints, by GPU (``GPU0``).

    Each has ``links``, the word in the matrix (NV18, PXB, ...) by the other device, network adapters by their names
    instead of nvidia-smi's numbers; ``cpus`` and ``numa`` as the kernel writes lists, empty where nothing is told.
    """
    lines = [line.rstrip() for line in UNDERLINE.sub("", text).splitlines()]
    heading = next((line for line in lines if re.match(r"\s+GPU0\b", line)), "")
    columns = [word.strip() for word in heading.split("\t")[1:]]
    names = dict(re.findall(r"^\s+(NIC\d+): (\S+)$", "\n".join(lines), re.MULTILINE))
    devices = [column for column in columns if re.fullmatch(r"GPU\d+|NIC\d+|mlx\d+_\d+", column)]
    found = {}
    for line in lines:
        name, *cells = (cell.strip() for cell in line.split("\t"))
        if name in columns and name.startswith("GPU"):
            row = dict(zip(columns, cells, strict=False))  # cells at the end may be left out
            found[name] = {
                "links": {names.get(device, device): row[device] for device in devices if device != name},
                "cpus": row.get("CPU Affinity", ""),
                "numa": row.get("NUMA Affinity", ""),
            }
    return found


def nearest_adapters(matrix: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """By GPU, the network adapters that are nearest to it; several where they are equally near, none where all are far.

    ``matrix`` is that of :func:`topology`. SYS, the way through another socket, is near to nothing.
    """
    nearest = {}
    for gpu, row in matrix.items():
        far = {name: DISTANCES.index(word) for name, word in row["links"].items() if word in DISTANCES}
        far = {name: steps for name, steps in far.items() if not name.startswith("GPU") and steps < len(DISTANCES) - 1}
        nearest[gpu] = sorted(name for name, steps in far.items() if steps == min(far.values()))
    return nearest


def words(given: str | Iterable[Any]) -> list[str]:
    """The words of an argument that is a list: `-e x=a,b` on the command line is one text, which its type allows."""
    parts = given.split(",") if isinstance(given, str) else given
    return [word for word in (str(part).strip() for part in parts) if word]


def findings(observations: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those of a role's ``observations`` that were made, as a report has them: without ``found``, which says so."""
    return [{name: value for name, value in item.items() if name != "found"} for item in observations if item["found"]]


def unread(results: Iterable[Mapping[str, Any]], kubeconfig: str) -> str:
    """Why the cluster was not read, by the first of some modules' ``results`` that failed; empty where none did.

    The results are of tasks with `failed_when: false`, which leaves of some failures only that there was one.
    """
    failed = next((result for result in results if _failed(result)), None)
    if failed is None:
        return ""
    told = " ".join(str(failed.get("msg", "")).split()).rstrip(".")
    return f"the cluster cannot be read: {told or f'`kubectl --kubeconfig {kubeconfig} get nodes` says why'}."


def _failed(result: Mapping[str, Any]) -> bool:
    return "failed_when_suppressed_exception" in result or bool(result.get("msg") and "resources" not in result)


def unfit(rules: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of a role's broken ``rules`` is about the node as it is, not about what is asked for."""
    return any(rule["broken"] and rule.get("unfit", False) for rule in rules)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the roles' YAML uses."""
        return {
            "machine_topology": topology,
            "machine_nearest_adapters": nearest_adapters,
            "machine_words": words,
            "machine_findings": findings,
            "machine_unread": unread,
            "machine_unfit": unfit,
        }
