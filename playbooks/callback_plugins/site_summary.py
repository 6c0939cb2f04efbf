"""Ansible callback of the playbooks: after the last task, one line for each node, also where a run breaks off.

A play could not do this: Ansible ends a playbook as soon as all nodes of a batch have failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: site_summary
type: aggregate
short_description: What became of each node
description: Says for each node of the playbooks whether it is prepared, waits, failed or was not begun, and what to do.
"""

REPORT = re.compile(r"([a-z][a-z_]*)_report")
FIXES = {
    r"[Mm]issing sudo password|[Ii]ncorrect sudo password|a password is required": (
        "set ansible_become_password or run with --ask-become-pass, or let ansible_user run sudo without a password"
    ),
    r"sudo: (?:command )?not found": "install sudo on the node, or set ansible_user to root",
    r"is not in the sudoers|not allowed to (?:execute|run)": "set ansible_user to an account that may run sudo",
    r"Read-only file system|Unlinking failed": (
        "mount the file system for writing; a damaged disk turns read-only, see dmesg"
    ),
    r"No space left on device": "free space on the node",
}
"""What to do about a failure, by a pattern of its message; the roles' own messages say it themselves."""
LABELS = "node_profile"
"""The role that waits for all others."""
LEFT_OUT = (
    "No node was taken: --tags, --skip-tags or --start-at-task have left out the choice of nodes. Run without them."
)
UNREACHABLE_FIX = "check ansible_host, ansible_user and the key, and that the machine runs: ssh must reach it from here"


@dataclass
class Node:
    """What the run has told of one node."""

    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: bool = False
    failure: str = ""
    told: str = ""
    """The message of the failure."""
    unreachable: str = ""
    dropped_with: str = ""
    """The node on which a task for the whole batch failed: Ansible goes on with none, and says so of one."""


def line(node: Node, ended_early: str, *, checking: bool = False) -> tuple[str, str]:
    """A word for the state of a node, and a sentence. ``ended_early`` names those that stopped the run.

    ``checking`` says that the run changes nothing: then no role has failed to make the node as asked.
    """
    if node.unreachable:
        return "unreachable", f"{node.unreachable}. Fix: {UNREACHABLE_FIX}"
    if node.failure:
        return "failed", node.failure
    if node.dropped_with:
        return "broken off", f"because of what failed on {node.dropped_with}"
    for state in ("failed", "waiting"):
        told = {role: report for role, report in node.reports.items() if report["status"] == state}
        if told:
            word = "not yet" if checking else state
            return word, " ".join(filter(None, (_told(role, told[role], alone=len(told) == 1) for role in told)))
    if not node.begun:
        return "not begun", f"because of {ended_early}"
    skipped = [f"{role} ({report['why']})" for role, report in node.reports.items() if report["status"] == "skipped"]
    return "done", f"skipped: {', '.join(skipped)}" if skipped else ""


def _told(role: str, report: Mapping[str, Any], *, alone: bool) -> str:
    """What keeps a role from being content, with the fixes of the findings that its sentence names."""
    findings = report.get("findings", [])
    why = report["why"]
    if role == LABELS and not alone:
        # It has no label "while" the others are as they are, who have their own say.
        why = " ".join(finding["what"] for finding in findings if finding["severity"] != "info")
    fixes = dict.fromkeys(finding["fix"] for finding in findings if finding["what"] in why)
    return f"{role}: {' '.join([why, *(f'Fix: {fix}' for fix in fixes if fix and fix not in why)])}" if why else ""


def _line_of(message: object) -> str:
    """A message as one line; the roles give several sentences as a list."""
    return " ".join((" ".join(map(str, message)) if isinstance(message, list) else str(message)).split())


def _said(result: Mapping[str, Any]) -> str:
    """The message of a result, with what the node itself has said last where no module came to run."""
    text, stderr = _line_of(result.get("msg", "")), str(result.get("module_stderr", "")).split("\n")
    last = next((line.strip() for line in reversed(stderr) if line.strip()), "")
    return text if last in text else f"{text.rstrip('.')}: {last}"


def failure(task: str, message: object, path: str = "") -> str:
    """One line on a task that failed; modules tell the path apart."""
    text = _line_of(message)
    if path and path not in text:
        text = f"{text.rstrip('.')} ({path})"
    fix = next((f". Fix: {advice}" for pattern, advice in FIXES.items() if re.search(pattern, text)), "")
    return f"{task}: {text.rstrip('.') if fix else text}{fix}"


def table(nodes: Mapping[str, Node], *, checking: bool = False) -> list[str]:
    """A line for each node, the columns aligned."""
    ended_early = ", ".join(name for name, node in nodes.items() if node.unreachable or node.failure)
    told = {name: line(node, ended_early, checking=checking) for name, node in nodes.items()}
    width = max((len(name) for name in told), default=0)
    return [f"{name:<{width}}  {state:<11}  {why}".rstrip() for name, (state, why) in told.items()]


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Ansible's entry point."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "site_summary"

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, Node] = {}
        self._batch: set[str] = set()
        self._batched = self._changes = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """A play whose nodes are taken in batches is the one that changes them."""
        self._batch = set()
        self._batched = bool(play.serial)
        self._changes |= self._batched

    def v2_runner_on_ok(self, result: Any) -> None:
        """Keep the list of nodes, and what a role reports."""
        told = result._result
        if result._task.action == "site_arguments":
            self._nodes = {name: Node() for name in told["nodes"]}
        node = self._nodes.get(result._host.get_name())
        if node is None:
            return
        self._batch.add(result._host.get_name())
        node.dropped_with = ""
        node.begun |= self._batched
        for name, value in told.get("ansible_facts", {}).items():
            role = REPORT.fullmatch(name)
            if role and isinstance(value, Mapping):
                node.reports[role[1]] = value

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Keep a node's first failure, or a later one that quotes it; of several items that of the first to fail."""
        name = result._host.get_name()
        node = self._nodes.get(name)
        if node and not ignore_errors and result._task.run_once:
            for other in self._batch - {name}:
                self._nodes[other].dropped_with = self._nodes[other].dropped_with or name
        if node and not ignore_errors:
            told = next((item for item in result._result.get("results", []) if item.get("failed")), result._result)
            text = _said(told)
            if not node.failure or (node.told in text and node.told != text):
                node.told = text
                node.failure = failure(result._task.get_name(), text, told.get("path", ""))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep why a node could not be reached."""
        node = self._nodes.get(result._host.get_name())
        if node:
            node.unreachable = " ".join(str(result._result.get("msg", "")).split()).rstrip(".")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The last word of a run; of one that changes nothing, only on nodes that it could not look at."""
        for name, node in self._nodes.items():
            if not stats.failures.get(name):  # what a role has rescued is no failure
                node.failure = ""
        nodes = {name: node for name, node in self._nodes.items() if self._changes or node.failure or node.unreachable}
        if not self._nodes and not stats.failures and not stats.dark:
            self._display.warning(LEFT_OUT)
        if nodes:
            self._display.banner("NODES")
            for text in table(nodes, checking=bool(context.CLIARGS.get("check"))):
                self._display.display(text)
