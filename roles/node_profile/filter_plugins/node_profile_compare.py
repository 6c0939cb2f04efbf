"""The report over all nodes: the state of each role on each node, the findings, and what differs between nodes."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

UNREAD = "unread"
"""The state of a node of which nothing is known: out of reach, or its run ended before it was read."""
BROKEN_OFF = "broken off"
"""The state of a node whose run ended before all roles had reported that reported elsewhere."""

WORST_FIRST = ("failed", UNREAD, BROKEN_OFF, "waiting", "ok", "skipped")
SEVERITIES = ("error", "warning", "info")
WIDTH = 120
"""Characters of a line of the text."""

Node = Mapping[str, Any]


def compare(nodes: Mapping[str, Node], order: Sequence[str]) -> dict[str, Any]:
    """The report as data.

    ``nodes`` holds, by name, ``reports`` (by role), ``features`` (by name, texts that should be the same everywhere;
    empty for a node that was not read), ``kind`` (nodes of one kind are compared with each other) and ``failure`` (what
    ended the node's run, or nothing). ``order`` has all roles as the playbook runs them.
    """
    roles = [role for role in order if any(role in node["reports"] for node in nodes.values())]
    states = {name: _node_state(node, roles, order) for name, node in nodes.items()}
    return {
        "roles": roles,
        "nodes": states,
        "differences": differences({name: node for name, node in nodes.items() if node["features"]}),
        "unfit": [name for name, state in states.items() if state["status"] not in ("ok", "skipped")],
    }


def _node_state(node: Node, roles: Sequence[str], order: Sequence[str]) -> dict[str, Any]:
    reports = node["reports"]
    status, why = _status(node, roles, order)
    return {
        "status": status,
        "why": why,
        "roles": {role: {"status": reports[role]["status"], "why": reports[role]["why"]} for role in reports},
        "findings": sorted(
            ({"role": role, **finding} for role, report in reports.items() for finding in report["findings"]),
            key=lambda finding: SEVERITIES.index(finding["severity"]),
        ),
    }


def _status(node: Node, roles: Sequence[str], order: Sequence[str]) -> tuple[str, str]:
    reports = node["reports"]
    if not node["features"] and not reports:
        return UNREAD, node["failure"] or "nothing could be read from it: it is out of reach, or its run has failed"
    if node["failure"]:
        unasked = ", ".join(role for role in order if role not in reports)
        return "failed", " ".join([node["failure"], *([f"Not looked at after that: {unasked}."] if unasked else [])])
    missing = [role for role in roles if role not in reports]
    if missing:
        return BROKEN_OFF, f"the run ended before {', '.join(missing)}"
    worst = min((report["status"] for report in reports.values()), key=WORST_FIRST.index, default="ok")
    whys = {role: report["why"] for role, report in reports.items() if report["status"] == worst}
    return ("ok" if worst == "skipped" else worst), "" if worst in ("ok", "skipped") else _told(whys, worst)


def differences(nodes: Mapping[str, Node]) -> list[dict[str, Any]]:
    """One entry for each feature in which nodes of a kind are not alike.

    ``usual`` is the value that more than half of the kind's nodes have, or nothing where no value has that; ``nodes``
    are the others, or then all of them, with what they have.
    """
    found = []
    for kind in sorted({node["kind"] for node in nodes.values()}):
        alike = {name: node["features"] for name, node in nodes.items() if node["kind"] == kind}
        for feature in dict.fromkeys(name for values in alike.values() for name in values):
            values = {name: values.get(feature, "none") for name, values in alike.items()}
            (usual, amount), *others = Counter(values.values()).most_common()
            if not others:
                continue
            settled = amount > len(values) / 2
            odd = {name: value for name, value in values.items() if not settled or value != usual}
            found.append({"kind": kind, "feature": feature, "usual": usual if settled else "", "nodes": odd})
    return found


def sentences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The differences as people say them: by node where there is a usual value, by feature where there is none."""
    by_node: dict[str, list[str]] = {}
    split = []
    for item in found:
        if item["usual"]:
            for name, value in item["nodes"].items():
                by_node.setdefault(name, []).append(f"{item['feature']} {value} (others {item['usual']})")
        else:
            shares = ", ".join(f"{value} on {', '.join(names)}" for value, names in _turned(item["nodes"]).items())
            split.append(f"{item['feature']} is not the same: {shares}")
    return [f"{name} differs: {', '.join(by_node[name])}" for name in sorted(by_node)] + split


def _turned(values: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return names


def render(report: Mapping[str, Any], form: str) -> str:
    """The report as ``text`` for people or as ``json``."""
    if form == "json":
        return json.dumps({**report, "sentences": sentences(report["differences"])}, indent=2) + "\n"
    if form == "text":
        parts = [_table(report), _findings(report["nodes"]), _differences(report["differences"]), [_summary(report)]]
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    raise AnsibleFilterError(f"a report is text or json, not {form!r}")


def _table(report: Mapping[str, Any]) -> list[str]:
    """Nodes down, roles across."""
    rows = [["NODE", *report["roles"], "IN ALL"]]
    for name, node in report["nodes"].items():
        cells = [node["roles"].get(role, {"status": "-"})["status"] for role in report["roles"]]
        rows.append([name, *cells, node["status"]])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _findings(nodes: Mapping[str, Node]) -> list[str]:
    """Nodes of which the same is to be said are named together: a cluster is mostly of one kind."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, node in nodes.items():
        alike.setdefault(tuple(_node_findings(node)), []).append(name)
    return [line for found, names in alike.items() if found for line in (*_wrapped(f"{', '.join(names)}:", ""), *found)]


def _node_findings(node: Node) -> Iterator[str]:
    if node["why"]:
        yield from _wrapped(f"{node['status']}: {_short(node)}")
    for finding in node["findings"]:
        yield from _wrapped(f"{finding['severity']}: {finding['role']}: {finding['what']}")
        if finding["fix"]:
            yield from _wrapped(f"fix: {finding['fix']}", "    ")


def _short(node: Node) -> str:
    """Why the node is not as asked, of its roles only what the findings below do not say themselves."""
    worst = {role: told["why"] for role, told in node["roles"].items() if told["status"] == node["status"]}
    if node["why"] != _told(worst, node["status"]):
        return str(node["why"])
    for finding in node["findings"]:
        role = finding["role"]
        worst |= {role: worst[role].replace(finding["what"], "").strip()} if role in worst else {}
    return "; ".join(f"{role}: {why}" if why else role for role, why in worst.items())


def _told(whys: Mapping[str, str], status: str) -> str:
    return "; ".join(f"{role}: {why or status}" for role, why in whys.items())


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _differences(found: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [line for sentence in sentences(found) for line in _wrapped(sentence)]
    return ["Differences between nodes of a kind:", *lines] if lines else []


def _summary(report: Mapping[str, Any]) -> str:
    unfit, every = report["unfit"], report["nodes"]
    if not unfit:
        return f"All {len(every)} nodes are as asked." if len(every) != 1 else "The node is as asked."
    return f"{len(unfit)} of {len(every)} nodes are not as asked: {', '.join(unfit)}."


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "node_profile_compare": compare,
            "node_profile_render": render,
        }
