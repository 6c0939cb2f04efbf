"""What custom resources may hold, for those whose definitions no registry serves: written down from their CRDs.

A CRD drops the keys that it does not know, so each mapping here is closed.
"""

from __future__ import annotations

from typing import Any

import jsonschema

from scripts.generate.frame import DURATION, KEY, LABEL_VALUE, Schema, list_of, map_of_texts, section, text, whole

QUANTITIES = map_of_texts(".", r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$")

SPECS: dict[tuple[str, str], Schema] = {
    # prometheus-operator, example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml: the keys in use here
    ("monitoring.coreos.com/v1", "PodMonitor"): section(
        {
            "jobLabel": text("."),
            "selector": section({"matchLabels": map_of_texts(KEY, LABEL_VALUE)}),
            "podMetricsEndpoints": list_of(
                section({"port": text("."), "path": text("^/"), "interval": text(DURATION)}, required=("port",))
            ),
        },
        required=("selector",),
    ),
    # volcano.sh, config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml
    ("scheduling.volcano.sh/v1beta1", "PodGroup"): section(
        {
            "minMember": whole(1),
            "minResources": QUANTITIES,
            "queue": text("."),
            "priorityClassName": text("."),
        },
        required=("minMember",),
    ),
    # sigs.k8s.io/scheduler-plugins, manifests/coscheduling/crd.yaml
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"): section(
        {"minMember": whole(1), "minResources": QUANTITIES, "scheduleTimeoutSeconds": whole(1)},
        required=("minMember",),
    ),
}


def known(manifest: dict[str, Any]) -> bool:
    """Whether the object's spec is described here."""
    return (manifest["apiVersion"], manifest["kind"]) in SPECS


def problems(manifest: dict[str, Any]) -> list[str]:
    """What its CRD would drop or refuse."""
    validator = jsonschema.Draft202012Validator(SPECS[manifest["apiVersion"], manifest["kind"]])
    return [f"{manifest['kind']}.spec: {error.message}" for error in validator.iter_errors(manifest["spec"])]
