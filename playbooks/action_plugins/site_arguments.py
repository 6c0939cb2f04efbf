"""Ansible action of the playbooks: refuse variables that cannot be right, of all nodes at once, before any is touched.

Runs where Ansible runs and connects to no node. Its result has for each node of ``group`` what the playbooks decide on:
the playbooks' own variables, and ``leave``, the permissions to interrupt work that its variables give.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

REPO = Path(__file__).parents[2]
PLAYBOOKS = "the playbooks"
SIMILAR_PREFIX = 0.9
"""How alike a variable must be, unless it begins as only a role's do, to an argument to count as a slip of the pen."""
INTERRUPTING = ("_restart_ok", "_reboot_ok", "drain_ok")
"""How the names of arguments end that allow to interrupt what runs; other permissions make no node wait for another."""
NODES_NAMED = 3
SERIAL = re.compile(r"[1-9]\d*%?")
PLAIN_PATTERN = re.compile(r"[!&]?([\w.-]+)")

Spec = dict[str, dict[str, Any]]


def load_specs(repo: Path = REPO) -> dict[str, Spec]:
    """By role, all arguments of its entry points; those of the playbooks under :data:`PLAYBOOKS`."""
    files = {path.parts[-3]: path for path in sorted(repo.glob("roles/*/meta/argument_specs.yml"))}
    specs: dict[str, Spec] = {}
    for owner, path in {**files, PLAYBOOKS: repo / "playbooks/vars/arguments.yml"}.items():
        specs[owner] = {}
        for point in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            for name, option in point.get("options", {}).items():
                specs[owner].setdefault(name, option)
    return specs


def unknown(names: Iterable[str], specs: Mapping[str, Spec]) -> list[str]:
    """A sentence on each variable that looks like an argument and is none."""
    known = {argument: owner for owner, spec in specs.items() for argument in spec}
    sentences = []
    for name in names:
        owner = next((role for role in specs if name.startswith(f"{role}_")), "")
        # Others have variables that begin with a plain word, such as machine_type or drain_hook.
        ours = "_" in owner or difflib.get_close_matches(name, known, n=1, cutoff=SIMILAR_PREFIX)
        if name in known or not ours:
            continue
        closest = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean {closest[0]}?" if closest else ""
        where = f"role {owner}" if owner else "any role"
        listed = f"roles/{owner or (closest and known[closest[0]])}/README.md"
        listed = listed if (REPO / listed).exists() else "playbooks/inventory/sample.yml"
        sentences.append(f"{name} is no argument of {where}.{meant} {listed} lists them.")
    return sentences


def checked(values: Mapping[str, Any], specs: Mapping[str, Spec]) -> tuple[dict[str, Any], list[str]]:
    """The ``values`` in their arguments' types, and a sentence on each that cannot be read as its type."""
    valid: dict[str, Any] = {}
    sentences = []
    for owner, spec in specs.items():
        given = {name: values[name] for name in spec if name in values}
        result = ArgumentSpecValidator({name: spec[name] for name in given}).validate(given)
        valid |= result.validated_parameters
        readme = f" roles/{owner}/README.md says what it may be." if owner != PLAYBOOKS else ""
        sentences += [f"{message.rstrip('.')}.{readme}" for message in result.error_messages]
    return valid, sentences


def refused_differences(values: Mapping[str, Mapping[str, Any]], specs: Mapping[str, Spec]) -> list[str]:
    """A sentence on each argument that all nodes of a run have to share, and that their ``values`` do not.

    The cluster is asked, and the device plugin deployed, once for all nodes of a batch: with the arguments of one.
    """
    sentences = []
    clusters = {str(node.get("machine_kubeconfig", "")) for node in values.values()}
    if len(clusters) > 1:
        named = ", ".join(name or "nothing" for name in sorted(clusters))
        sentences.append(
            f"machine_kubeconfig has several values, {named}. Take one cluster's nodes at a time, by --limit."
        )
    spec = specs.get("device_plugin", {})
    kind = spec.get("device_plugin_kind", {}).get("default", "")
    served = [node for node in values.values() if node.get("device_plugin_kind", kind) != "none"]
    for name in sorted(spec.keys() - {"device_plugin_timeout"}):
        given = sorted({str(node.get(name, spec[name].get("default"))) for node in served})
        if len(given) > 1:
            sentences.append(
                f"{name} has several values, {', '.join(map(repr, given))}, and the device plugin is deployed once for"
                " the cluster. Give all nodes that it serves the same."
            )
    return sentences


def refused_serials(serials: Iterable[str]) -> list[str]:
    """A sentence where the nodes' ``site_serial`` cannot be followed."""
    several = sorted(set(serials))
    if len(several) > 1:
        return [f"site_serial has several values, {', '.join(several)}. Give all nodes the same."]
    return [
        f"site_serial is {value!r}. Give a number of nodes above 0, or a share of them such as 20%."
        for value in several
        if not SERIAL.fullmatch(value)
    ]


def permissions(valid: Mapping[str, Any]) -> list[str]:
    """The arguments that allow to interrupt what runs on the node: restart, drain, reboot."""
    return sorted(name for name, value in valid.items() if name.endswith(INTERRUPTING) and value is True)


def unmatched(limit: str, names: Iterable[str]) -> list[str]:
    """Those plain names of a ``--limit`` that are neither a node nor a group."""
    known = {"all", *names}
    words = (PLAIN_PATTERN.fullmatch(word.strip()) for word in re.split(r"[,:]", limit))
    return [word[1] for word in words if word and word[1] not in known]


def gathered(sentences: Mapping[str, list[str]]) -> list[str]:
    """Sentences by node, each once with the nodes that it holds for."""
    nodes: dict[str, list[str]] = {}
    for node, found in sentences.items():
        for sentence in found:
            nodes.setdefault(sentence, []).append(node)
    return [f"{_named(where)}: {sentence}" for sentence, where in nodes.items()]


def _named(nodes: list[str]) -> str:
    rest = len(nodes) - NODES_NAMED
    return ", ".join(nodes[:NODES_NAMED]) + (f" and {rest} more" if rest > 0 else "")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Ansible's entry point."""

    _VALID_ARGS = frozenset({"group"})
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Raises AnsibleActionFail with all refusals in one message."""
        scope = task_vars or {}
        result: dict[str, Any] = super().run(tmp, scope)
        group = self._task.args["group"]
        members = scope["groups"].get(group, [])
        nodes = [name for name in members if name in scope["ansible_play_hosts_all"]]
        wrong = list(self._without_nodes(group, members, nodes, scope))
        if wrong:
            raise AnsibleActionFail("\n".join(wrong))
        specs = load_specs()
        plan, sentences, given = {}, {}, {}
        for node in nodes:
            variables = scope["hostvars"][node]
            values, broken = self._values(variables, {name for spec in specs.values() for name in spec})
            valid, mistyped = checked(values, specs)
            given[node] = valid
            sentences[node] = [*unknown(variables, specs), *broken, *mistyped]
            plan[node] = {
                "domain": valid.get("failure_domain", ""),
                "serial": valid.get("site_serial", "1"),
                "reset_also": valid.get("site_reset_also", []),
                "leave": permissions(valid),
                "name": valid.get("machine_node_name", ""),
                "cluster": valid.get("machine_kubeconfig", ""),
            }
        refused = [
            *gathered(sentences),
            *refused_serials(node["serial"] for node in plan.values()),
            *refused_differences(given, specs),
        ]
        if refused:
            raise AnsibleActionFail("\n".join(["nothing was changed on any node.", *refused]))
        return result | {"changed": False, "nodes": plan}

    def _without_nodes(
        self, group: str, members: list[str], nodes: list[str], scope: Mapping[str, Any]
    ) -> Iterator[str]:
        limit = scope.get("ansible_limit") or ""
        for name in unmatched(limit, [*scope["groups"], *scope["hostvars"]]):
            yield f"--limit names {name}, which is neither a node nor a group of the inventory."
        if not members:
            yield (
                f"the inventory has no node in the group {group}. Put your nodes below {group}: hosts:, as"
                " playbooks/inventory/sample.yml shows, and give the file with -i."
            )
        elif not nodes:
            yield f"--limit {limit} leaves no node of the group {group}, which has {_named(members)}."

    def _values(self, variables: Mapping[str, Any], known: set[str]) -> tuple[dict[str, Any], list[str]]:
        """The arguments that a node's variables give, and a sentence on each whose template fails."""
        values, broken = {}, []
        for name in sorted(known.intersection(variables)):
            try:
                values[name] = variables[name]
            except AnsibleError as error:
                broken.append(f"{name} cannot be evaluated: {error.message}")
        return values, broken
