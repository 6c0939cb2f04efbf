"""Why a node does not offer the GPUs that it has: what the API, the kubelet's folder and the hardware say together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Seen = Mapping[str, Any]
"""What was read: ``node``, ``daemonset`` (empty without one), ``pods`` and ``events`` of the plugin, ``plugin`` (what
the module device_plugin_read found); what should be: ``expected``, ``offered`` (``capacity`` and ``allocatable``),
``labels``, ``runtime_class``; and the names ``release``, ``namespace`` and ``node_name`` for the fixes."""

Finding = dict[str, str]

FOLDER = "/var/lib/kubelet/device-plugins"
PLUGIN_IMAGES = re.compile(r"k8s-device-plugin|nvidia-(?:gpu-)?device-plugin|/hami\b|vgpu-device-plugin")
"""Of NVIDIA's plugin, also as the GPU operator and Google's installer have it, HAMi and Volcano's."""


def daemonset(sets: Sequence[Mapping[str, Any]], release: str, namespace: str) -> Mapping[str, Any]:
    """The one of a release's DaemonSets that serves the kubelet: it mounts the kubelet's folder of device plugins."""
    return next((item for item in sets if _serves_kubelet(item) and _belongs(item, release, namespace)), {})


def rivals(sets: Sequence[Mapping[str, Any]], release: str, namespace: str) -> list[Mapping[str, Any]]:
    """The DaemonSets of others that may run a plugin for NVIDIA's GPUs; plugins of other hardware do no harm."""
    return [
        item
        for item in sets
        if _serves_kubelet(item) and not _belongs(item, release, namespace) and PLUGIN_IMAGES.search(_images(item))
    ]


def rival_names(pods: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], node: str) -> list[str]:
    """Those of the ``others`` that have a pod on the node, as ``namespace/name``."""
    return [
        f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in others if own_pods(pods, item, node)
    ]


def _serves_kubelet(item: Mapping[str, Any]) -> bool:
    volumes = item["spec"]["template"]["spec"].get("volumes") or []
    return any((volume.get("hostPath") or {}).get("path", "").rstrip("/") == FOLDER for volume in volumes)


def _belongs(item: Mapping[str, Any], release: str, namespace: str) -> bool:
    of = item["metadata"]
    return of["namespace"] == namespace and (of.get("labels") or {}).get("app.kubernetes.io/instance") == release


def _images(item: Mapping[str, Any]) -> str:
    return " ".join(container["image"] for container in item["spec"]["template"]["spec"]["containers"])


def own_pods(pods: Sequence[Mapping[str, Any]], daemon: Mapping[str, Any], node: str) -> list[Mapping[str, Any]]:
    """The pods of a DaemonSet on one node."""
    uid = daemon.get("metadata", {}).get("uid")
    return [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") == node
        and any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or [])
    ]


def silent(resources: Mapping[str, int], sockets: Sequence[str]) -> list[str]:
    """The resources that nobody answers for. A socket is called ``nvidia-`` and the last part of its resource."""
    return [resource for resource in resources if f"nvidia-{resource.partition('/')[2]}.sock" not in sockets]


def findings(seen: Seen) -> list[Finding]:
    """A sentence and its fix for each thing that is wrong; a node that offers what it should has none."""
    found = [
        _error(problem, "Put the MIG devices in order with nvidia-smi mig, or give another device_plugin_mig_strategy")
        for problem in seen["expected"]["problems"]
    ]
    found += _amounts(seen)
    return found + _causes(seen) if any(item["severity"] == "error" for item in found) else found


def _amounts(seen: Seen) -> list[Finding]:
    found = []
    unanswered = silent(seen["expected"]["resources"], seen["plugin"]["sockets"])
    for resource, wanted in seen["expected"]["resources"].items():
        capacity, allocatable = (seen["offered"][quantity][resource] for quantity in ("capacity", "allocatable"))
        if allocatable and resource in unanswered:
            what = f"the kubelet offers {allocatable} {resource}, but no plugin of it listens in {FOLDER}"
            fix = "pods would start without a GPU. Start the plugin; without one, restart the kubelet"
        elif allocatable < capacity and resource in unanswered:
            what = f"the plugin of {resource} is gone; {capacity} were offered"
            fix = f"see kubectl --namespace {seen['namespace']} get pods, and below why it is"
        elif allocatable < capacity:
            what = f"{capacity - allocatable} of {capacity} {resource} are unhealthy"
            fix = f"look for Xid in the kernel's log. Once the cause is gone, only this helps: {_restart(seen)}"
        elif allocatable < wanted:
            what = f"the node offers {allocatable} {resource}; its hardware comes to {wanted}"
            fix = f"compare nvidia-smi on the node with lspci, then {_restart(seen)}"
        elif allocatable > wanted:
            what = f"the node offers {allocatable} {resource}, more than the {wanted} that its hardware comes to"
            fix = "give device_plugin_time_slicing, _split_count and _mig_strategy as the plugin has them"
        else:
            continue
        found.append(_error(what, fix))
    return found


def _restart(seen: Seen) -> str:
    pods = seen["pods"]
    name = pods[0]["metadata"]["name"] if pods else f"--selector app.kubernetes.io/instance={seen['release']}"
    return f"kubectl --namespace {seen['namespace']} delete pod {name}"


def _causes(seen: Seen) -> list[Finding]:
    """From the release down to the container; what is further down than the first break says nothing."""
    if not seen["daemonset"]:
        what = f"release {seen['release']} in {seen['namespace']} has no DaemonSet that mounts {FOLDER}"
        return [_error(what, "let site.yml deploy the chart, or name its release in device_plugin_release")]
    if not seen["pods"]:
        return list(_no_pod(seen))
    return [finding for pod in seen["pods"] for finding in _pod(pod, seen)]


def _no_pod(seen: Seen) -> Iterator[Finding]:
    name = seen["daemonset"]["metadata"]["name"]
    labels = seen["node"].get("metadata", {}).get("labels", {})
    lacks = {label: value for label, value in seen["labels"].items() if labels.get(label) != value}
    if lacks:
        words = ", ".join(f"{label}={value}" for label, value in lacks.items())
        yield _error(f"DaemonSet {name} takes no node without {words}, and this one is", "let site.yml label the node")
        return
    event = _last(seen["events"], name, "FailedCreate")
    if event and "RuntimeClass" in event:
        yield _error(f"the plugin's pod is not made: {event}", "let site.yml make the RuntimeClass")
    elif event:
        yield _error(f"the plugin's pod is not made: {event}", "grant what is asked for")
    else:
        desired = seen["daemonset"]["status"].get("desiredNumberScheduled", 0)
        what = f"DaemonSet {name} has no pod on this node (it wants {desired} in all)"
        yield _error(what, "compare its nodeSelector, affinity and tolerations with the node's labels and taints")


def _pod(pod: Mapping[str, Any], seen: Seen) -> Iterator[Finding]:
    name = pod["metadata"]["name"]
    runtime_class = pod["spec"].get("runtimeClassName", "")
    if runtime_class != seen["runtime_class"]:
        what = (
            f"pod {name} runs under {runtime_class or 'the default runtime'}, not RuntimeClass {seen['runtime_class']}"
        )
        yield _error(what, "let site.yml deploy the chart with runtimeClassName")
    sandbox = _last(seen["events"], name, "FailedCreatePodSandBox")
    if sandbox and "no runtime for" in sandbox:
        yield _error(
            f"pod {name} cannot start: {sandbox}", "let role container_runtime configure the handler on this node"
        )
        return
    for status in pod["status"].get("containerStatuses") or []:
        state = status.get("state", {}).get("waiting")
        if state:
            ended = status.get("lastState", {}).get("terminated", {}).get("message", "").strip()
            what = f"container {status['name']} of pod {name} waits: {state['reason']}{': ' + ended if ended else ''}"
            yield _error(what, f"read kubectl --namespace {seen['namespace']} logs {name} --container {status['name']}")


def _last(events: Sequence[Mapping[str, Any]], name: str, reason: str) -> str:
    """The newest message of an object's events with a reason; empty where there is none."""
    mine = [event for event in events if event["involvedObject"]["name"] == name and event["reason"] == reason]
    newest = max(mine, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "", default=None)
    return str(newest["message"]).strip() if newest else ""


def _error(what: str, fix: str) -> Finding:
    return {"severity": "error", "what": f"{what[0].upper()}{what[1:]}.", "fix": f"{fix[0].upper()}{fix[1:]}."}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "device_plugin_daemonset": daemonset,
            "device_plugin_own_pods": own_pods,
            "device_plugin_silent": silent,
            "device_plugin_rivals": rivals,
            "device_plugin_rival_names": rival_names,
            "device_plugin_findings": findings,
        }
