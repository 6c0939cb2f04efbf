"""Filters of the role node_profile: what the other roles' reports come to. Pure functions of their arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

HASH_DIGITS = 12
"""Hexadecimal digits of the hash in the label, as the contract has it."""

CONTENT = ("ok", "skipped")
"""The states of a role in which a node may carry the label."""

Facts = Mapping[str, Any]
Report = Mapping[str, Any]


def reports(variables: Mapping[str, Any], roles: Sequence[str]) -> dict[str, Report]:
    """By role, the report that it left among the node's ``variables``; without the roles that did not run."""
    return {role: variables[f"{role}_report"] for role in roles if f"{role}_report" in variables}


def profile_hash(found: Mapping[str, Report]) -> str:
    """Of what was asked of all roles: nodes on which the same roles were asked for the same have the same hash."""
    asked = {role: report["asked"] for role, report in found.items() if report["asked"]}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:HASH_DIGITS]


def obstacles(found: Mapping[str, Report], roles: Sequence[str]) -> list[str]:
    """A sentence for each of the ``roles`` that is not content, or has not said anything about the node."""
    return [
        f"{role}: {found[role]['why'] or found[role]['status']}" if role in found else f"{role} has not run on the node"
        for role in roles
        if role not in found or found[role]["status"] not in CONTENT
    ]


def brief(nodes: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """What the role has to know of the Node object ``name``; nothing where the cluster has none.

    ``unready`` says why the kubelet is not ready for pods, ``cordoned`` whether new pods are kept off the node.
    """
    node = next((node for node in nodes if node["metadata"]["name"] == name), None)
    if node is None:
        return {}
    conditions = node["status"].get("conditions", [])
    ready: Mapping[str, Any] = next((item for item in conditions if item["type"] == "Ready"), {})
    return {
        "labels": node["metadata"].get("labels", {}),
        "annotations": node["metadata"].get("annotations", {}),
        "cordoned": node["spec"].get("unschedulable", False),
        "unready": "" if ready.get("status") == "True" else ready.get("message") or "its kubelet has not reported",
    }


def labelled(profile: str) -> bool:
    """Whether the text of the node's ``profile`` says that its Node object was labelled; a damaged one says nothing."""
    try:
        kept = json.loads(profile)
    except ValueError:
        return False
    return isinstance(kept, dict) and kept.get("labelled") is True


def network(facts: Facts, found: Mapping[str, Report], asked: Sequence[str]) -> dict[str, Any]:
    """What carries training: ``interfaces``, ``hcas`` and ``rails``, one rail for each GPU.

    ``asked`` names the interfaces; empty stands for that of the default route. The RDMA devices are those that the
    role rdma takes for training and has seen an active port of; on Ethernet that port's interface has to be one of the
    named ones, or of the bond that is.
    """
    interfaces = list(asked) or [name for name in [facts["default_interface"]] if name]
    masters = {nic["name"]: nic["master"] for nic in facts["nics"]}
    ports = [
        port
        for port in found.get("rdma", {}).get("hcas", [])
        if port["training"] and port["state"] == "ACTIVE" and _carries(port, asked, masters)
    ]
    return {
        "interfaces": interfaces,
        "hcas": sorted({port["name"] for port in ports}),
        "rails": [_rail(index, gpu, ports) for index, gpu in enumerate(_gpus(facts))],
    }


def _carries(port: Mapping[str, Any], asked: Sequence[str], masters: Mapping[str, str]) -> bool:
    if not asked or port["layer"] != "Ethernet":
        return True
    return any(name in asked or masters.get(name) in asked for name in port["netdevs"])


def _gpus(facts: Facts) -> list[Mapping[str, Any]]:
    """In the driver's order where it answers, which is that of NCCL's and PyTorch's indexes, else in that of PCI."""
    order = [gpu["address"] for gpu in facts["smi"]["gpus"]] if facts["smi"] else []
    return sorted(facts["gpus"], key=lambda gpu: order.index(gpu["address"]) if gpu["address"] in order else len(order))


def _rail(index: int, gpu: Mapping[str, Any], ports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    near = [port for port in ports if gpu["address"] in port["gpus"]]
    return {
        "gpu": index,
        "address": gpu["address"],
        "numa": gpu["numa_node"],
        "hcas": sorted({port["name"] for port in near}),
        "interfaces": sorted({name for port in near for name in port["netdevs"]}),
    }


def driver_branch(facts: Facts) -> str | None:
    """``580`` of driver 580.95.05; None without a driver."""
    loaded = facts["driver"]["loaded"]
    return loaded.partition(".")[0] if loaded else None


def missing(wanted: Mapping[str, str | None], there: Mapping[str, str]) -> dict[str, str | None]:
    """Those labels or annotations of the ``wanted`` ones that are not as they should be; None stands for absence."""
    return {name: value for name, value in wanted.items() if there.get(name) != value}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "node_profile_reports": reports,
            "node_profile_hash": profile_hash,
            "node_profile_obstacles": obstacles,
            "node_profile_brief": brief,
            "node_profile_labelled": labelled,
            "node_profile_network": network,
            "node_profile_driver_branch": driver_branch,
            "node_profile_missing": missing,
        }
