"""What custom resources may hold, for those whose definitions no registry serves: written down from their CRDs.

A CRD drops the keys that it does not know, so each mapping here is closed.
"""

from __future__ import annotations

from typing import Any

import jsonschema

from scripts.generate.frame import DURATION, KEY, LABEL_VALUE, Schema, list_of, map_of_texts, section, text, whole

KUBERNETES_OWN: Schema = {"type": "object"}
"""A type of Kubernetes itself, which kubernetes_types checks."""
REPLICAS = section(
    {
        "replicas": whole(0),
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "template": KUBERNETES_OWN,
    }
)

QUANTITIES = map_of_texts(".", r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$")

SPECS: dict[tuple[str, str], Schema] = {
    # kubeflow/training-operator v1.8.1, manifests/base/crds/kubeflow.org_pytorchjobs.yaml: the keys in use here
    ("kubeflow.org/v1", "PyTorchJob"): section(
        {
            "nprocPerNode": text("."),
            "runPolicy": section(
                {
                    "activeDeadlineSeconds": whole(1),
                    "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                    "ttlSecondsAfterFinished": whole(0),
                }
            ),
            "pytorchReplicaSpecs": section({"Master": REPLICAS, "Worker": REPLICAS}),
        },
        required=("pytorchReplicaSpecs",),
    ),
    # kubeflow/trainer v2.2.0, manifests/base/crds: the keys in use here
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): section(
        {
            "mlPolicy": section({"numNodes": whole(1), "torch": section({})}),
            "template": section(
                {
                    "spec": section(
                        {
                            "replicatedJobs": list_of(
                                section({"name": text("."), "template": KUBERNETES_OWN}, required=("name", "template"))
                            )
                        }
                    )
                }
            ),
        },
        required=("template",),
    ),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): section(
        {
            "runtimeRef": section({"apiGroup": text("."), "kind": text("."), "name": text(".")}, required=("name",)),
            "trainer": section({"numNodes": whole(1), "numProcPerNode": whole(1)}),
        },
        required=("runtimeRef",),
    ),
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
