"""Filters of the role device_plugin: what is deployed, and what a node then has to offer. Pure but for program."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

RESOURCE = "nvidia.com/gpu"
IMAGE = "nvidia/k8s-device-plugin"
"""The plugin's image below its registry."""

Facts = Mapping[str, Any]
Settings = Mapping[str, Any]


def values(kind: str, settings: Settings) -> dict[str, Any]:
    """The values of the chart of a ``kind`` of plugin; none has none."""
    if kind == "none":
        return {}
    return _hami_values(settings) if kind == "hami" else _nvidia_values(settings)


def _nvidia_values(settings: Settings) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        # Without it the plugin waits without end, and looks healthy, on a node whose driver it cannot load.
        "failOnInitError": True,
        "compatWithCPUManager": settings["pass_device_specs"],
        "deviceListStrategy": settings["device_list_strategy"],
        "migStrategy": settings["mig_strategy"],
    }
    if settings["runtime_class"]:
        rendered["runtimeClassName"] = settings["runtime_class"]
    if settings["driver_root"] != "/":
        rendered["nvidiaDriverRoot"] = settings["driver_root"]
    if settings["image_registry"]:
        rendered["image"] = {"repository": f"{settings['image_registry']}/{IMAGE}"}
    if settings["time_slicing"] > 1:
        rendered["config"] = {"map": {"default": _time_slicing(settings["time_slicing"])}}
    return rendered


def _time_slicing(replicas: int) -> str:
    """The plugin's own configuration file; a request for two slices would not give two cards, and is refused."""
    lines = [
        "version: v1",
        "sharing:",
        "  timeSlicing:",
        "    failRequestsGreaterThanOne: true",
        "    resources:",
        f"      - name: {RESOURCE}",
        f"        replicas: {replicas}",
    ]
    return "\n".join([*lines, ""])


def _hami_values(settings: Settings) -> dict[str, Any]:
    plugin: dict[str, Any] = {
        "deviceSplitCount": settings["split_count"],
        "passDeviceSpecsEnabled": settings["pass_device_specs"],
        "deviceListStrategy": settings["device_list_strategy"],
        "migStrategy": settings["mig_strategy"],
        "nvidiaDriverRoot": settings["driver_root"],
        "nvidiaNodeSelector": {"gpu": "on"},
        # The role makes the object, for both kinds alike.
        "createRuntimeClass": False,
        "runtimeClassName": settings["runtime_class"],
    }
    # The name that the experiments' pods ask for.
    rendered: dict[str, Any] = {"schedulerName": "hami-scheduler", "devicePlugin": plugin}
    if settings["image_registry"]:
        rendered["global"] = {"imageRegistry": settings["image_registry"]}
    return rendered


def expected(facts: Facts, settings: Settings) -> dict[str, Any]:
    """What the hardware and the settings come to: ``resources``, amounts by name, and the ``problems`` in the way.

    A card counts if it is on the PCI bus, whether or not the driver sees it: one that it has lost is missed.
    """
    cards = len(facts["gpus"])
    if settings["kind"] == "hami" or settings["mig_strategy"] == "none":
        pods = settings["split_count"] if settings["kind"] == "hami" else settings["time_slicing"]
        return {"resources": {RESOURCE: cards * pods}, "problems": _split_unasked(facts)}
    if facts["smi"] is None:
        problem = f"nvidia-smi does not answer, so nobody knows the MIG devices of the {cards} GPUs"
        return {"resources": {}, "problems": [problem]}
    return _with_mig(facts, settings)


def _split_unasked(facts: Facts) -> list[str]:
    """Cards that are offered as whole ones, of which CUDA sees one MIG device or none; unknown without nvidia-smi."""
    return [
        f"GPU {gpu['index']} has MIG on, and is offered as a whole card: a pod would get one MIG device of it or none"
        for gpu in (facts["smi"] or {"gpus": []})["gpus"]
        if gpu["mig"]
    ]


def _with_mig(facts: Facts, settings: Settings) -> dict[str, Any]:
    split = [gpu for gpu in facts["smi"]["gpus"] if gpu["mig"]]
    whole = len(facts["gpus"]) - len(split)
    profiles = Counter(device["profile"] for gpu in split for device in gpu["mig_devices"])
    # The plugin ends itself over such a card.
    problems = [f"GPU {gpu['index']} has MIG on and no MIG device" for gpu in split if not gpu["mig_devices"]]
    if settings["mig_strategy"] == "mixed":
        resources = {mig_resource(profile): amount for profile, amount in sorted(profiles.items())}
        if whole:
            resources[RESOURCE] = whole * settings["time_slicing"]
        return {"resources": resources, "problems": problems}
    if split and whole:
        problems.append(f"{whole} GPUs have MIG off and {len(split)} on; the strategy single needs them all alike")
    if len(profiles) > 1:
        problems.append(f"the MIG devices are {', '.join(sorted(profiles))}; the strategy single needs one profile")
    amount = sum(profiles.values()) if split else whole
    return {"resources": {RESOURCE: amount * settings["time_slicing"]}, "problems": problems}


def mig_resource(profile: str) -> str:
    """The plugin's name for MIG devices of a profile such as ``1g.10gb+me``."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def offered(node: Mapping[str, Any], resources: Mapping[str, Any], quantity: str) -> dict[str, int]:
    """The amounts of the ``resources`` in a Node object's ``quantity``, capacity or allocatable."""
    amounts = node.get("status", {}).get(quantity, {})
    return {name: _amount(amounts.get(name, "0")) for name in resources}


def _amount(quantity: str) -> int:
    """A whole number as Kubernetes writes it, which is with a suffix from 1000 on."""
    number, thousands = quantity.removesuffix("k"), quantity.endswith("k")
    return int(number) * (1000 if thousands else 1)


def label_plan(wanted: Mapping[str, str], live: Mapping[str, str], ours: Sequence[str]) -> dict[str, Any]:
    """What becomes of a node's labels: those to ``write``, the role's own to ``remove``, and those that somebody else
    has given another value than ``wanted``, the ``clashes``."""
    return {
        "write": {name: value for name, value in wanted.items() if name not in live},
        "remove": [name for name in ours if name in live and name not in wanted],
        "clashes": [name for name, value in wanted.items() if live.get(name, value) != value],
    }


def brief(nodes: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Of the Node objects, what the role needs of the one with this name; empty where there is none."""
    for node in nodes:
        if node["metadata"]["name"] == name:
            # A node that has just joined has neither.
            status = {quantity: node["status"].get(quantity, {}) for quantity in ("capacity", "allocatable")}
            return {"metadata": {"labels": node["metadata"].get("labels", {})}, "status": status}
    return {}


def program(name: str) -> str:
    """Where the machine that runs Ansible has a program; empty where it has none of this name or path."""
    return shutil.which(name) or ""


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "device_plugin_values": values,
            "device_plugin_expected": expected,
            "device_plugin_offered": offered,
            "device_plugin_label_plan": label_plan,
            "device_plugin_brief": brief,
            "device_plugin_program": program,
        }
