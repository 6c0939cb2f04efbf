"""Brings operators into the cluster and takes them out again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from scripts.lab import cluster, images, programs
from scripts.lab.kube import kubectl
from scripts.lab.operators import catalogue, manifest
from scripts.lab.operators.manifest import Object
from scripts.stages import Stages

READY_WITHIN = "180s"
GONE_WITHIN = "120s"
CUSTOM_RESOURCE = "CustomResourceDefinition"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def build(stages: Stages, names: Sequence[str]) -> None:
    """Compile what is missing of these operators and of what they need: minutes each, before anything waits for it."""
    if missing := [operator for operator in catalogue.chosen(names) if not operator.is_built]:
        for operator in missing:
            with stages(f"{operator.name} {operator.version}: program"):
                operator.build()
        programs.remove_build_caches()


def up(stages: Stages, names: Sequence[str]) -> None:
    """Have these operators running, and what they need; what runs already is left as it is. Raises RankzeroError."""
    build(stages, names)
    operators = catalogue.chosen(names)
    with cluster.only_one(stages):
        for operator in operators:
            with stages(f"{operator.name} {operator.version}: image"):
                images.provide(operator.image)
    for operator in operators:
        with stages(f"{operator.name} {operator.version}: running"):
            objects = manifest.objects(operator)
            kinds = manifest.of_kind(objects, CUSTOM_RESOURCE)
            webhooks = [one for kind in WEBHOOKS for one in manifest.of_kind(objects, kind)]
            # Their kinds first: objects of them may stand beside their definitions.
            _apply(kinds)
            _apply([*(one for one in objects if one not in kinds + webhooks), *map(_lenient, webhooks)])
            for one in (*manifest.of_kind(objects, "Deployment"), *manifest.of_kind(objects, "DaemonSet")):
                _hand_over_certificates(one)
                where = one["metadata"]
                kubectl(
                    *("--namespace", where["namespace"], "rollout", "status", f"{one['kind']}/{where['name']}"),
                    *("--timeout", READY_WITHIN),
                )
            _apply(webhooks)


def down(stages: Stages, names: Sequence[str]) -> None:
    """Take exactly these operators out, with every object of their kinds; what is not there is passed over."""
    for operator in reversed(catalogue.chosen(names)):
        if operator.name not in names or not operator.is_built:
            continue
        with stages(f"{operator.name}: removing"):
            objects = manifest.objects(operator)
            # While their controller still runs, which alone takes its finalizers from them.
            _remove_custom(manifest.of_kind(objects, CUSTOM_RESOURCE))
            _remove(objects)


def _apply(objects: Sequence[Object]) -> None:
    if objects:
        kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=_list(objects))


def _lenient(configuration: Object) -> Object:
    """Webhooks that let pass what they cannot judge yet: some see every pod of the cluster, other people's too."""
    return {**configuration, "webhooks": [{**one, "failurePolicy": "Ignore"} for one in configuration["webhooks"]]}


def _hand_over_certificates(workload: Object) -> None:
    """Let the kubelet look again at the Secret that the operator writes its certificates into, and mounts.

    By itself it does within two minutes, and as soon as something of the pod changes.
    """
    namespace = workload["metadata"]["namespace"]
    volumes = workload["spec"]["template"]["spec"].get("volumes", [])
    for secret in (volume["secret"]["secretName"] for volume in volumes if "secret" in volume):
        written = ("wait", "--for=jsonpath={.data}", f"secret/{secret}", "--timeout", READY_WITHIN)
        kubectl("--namespace", namespace, *written)
        kubectl("--namespace", namespace, "annotate", "pods", "--all", "--overwrite", f"rankzero.io/{secret}=written")


def _remove_custom(definitions: Sequence[Object]) -> None:
    wanted = [one["metadata"]["name"] for one in definitions]
    known = kubectl("get", "crd", *wanted, "--ignore-not-found", "--output", "name").split() if wanted else []
    if known:
        kinds = ",".join(name.partition("/")[2] for name in known)
        kubectl("delete", kinds, "--all", "--all-namespaces", "--timeout", GONE_WITHIN)


def _remove(objects: Sequence[Object]) -> None:
    kubectl("delete", "--ignore-not-found", "--timeout", GONE_WITHIN, "--filename", "-", stdin=_list(objects))


def _list(objects: Sequence[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
