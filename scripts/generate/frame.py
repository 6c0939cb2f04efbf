"""The hand-written part of the chart's schema: every value that does not come from the launcher's settings.

Descriptions are not repeated here: :mod:`scripts.generate.schema` takes them from the comments in
``values.yaml``. Only keys of list items, which ``values.yaml`` cannot show, carry their ``doc`` here.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_NAME = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
ABSOLUTE_PATH = r"^/[^:]+$"
MEMORY = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)$"
CPU = r"^([0-9]+(\.[0-9]+)?|[0-9]+m)$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
RESOURCE_NAME = r"^[-a-z0-9.]+/[-_.A-Za-z0-9]+$"


def section(properties: dict[str, Schema], *, required: tuple[str, ...] = (), doc: str = "") -> Schema:
    """A mapping with these keys and no others."""
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = list(required)
    return _described(schema, doc)


def text(pattern: str = "", *, optional: bool = False, longest: int = 0, doc: str = "") -> Schema:
    """A text that matches ``pattern``; with ``optional`` it may also be empty, which leaves it unset."""
    schema: Schema = {"type": "string"}
    if pattern:
        schema["pattern"] = f"^$|{pattern}" if optional else pattern
    if longest:
        schema["maxLength"] = longest
    return _described(schema, doc)


def choice(*values: str) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}


def whole(minimum: int, maximum: int | None = None) -> Schema:
    """A whole number within bounds, both included."""
    bounds: Schema = {"minimum": minimum} if maximum is None else {"minimum": minimum, "maximum": maximum}
    return {"type": "integer", **bounds}


def switch(doc: str = "") -> Schema:
    """True or false."""
    return _described({"type": "boolean"}, doc)


def list_of(item: Schema) -> Schema:
    """A list of like items."""
    return {"type": "array", "items": item}


def map_of_texts(names: str = "") -> Schema:
    """A mapping with free keys (matching ``names``) to texts."""
    schema: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
    if names:
        schema["propertyNames"] = {"pattern": names}
    return schema


def _described(schema: Schema, doc: str) -> Schema:
    return {"description": doc, **schema} if doc else schema


DATASET = section(
    {
        "name": text(DNS_LABEL, longest=40, doc="Name of the dataset within the release."),
        "mountPath": text(ABSOLUTE_PATH, doc="Where the trainer finds it."),
        "readOnly": switch(doc="Read-only unless set to false."),
        "claim": text(DNS_NAME, doc="Source: name of a claim in the release's namespace."),
        "nfs": section(
            {
                "server": text(r"^\S+$", doc="Host name or address of the NFS server."),
                "path": text(ABSOLUTE_PATH, doc="Exported path."),
            },
            required=("server", "path"),
            doc="Source: an NFS export, mounted by the nodes.",
        ),
        "hostPath": section(
            {"path": text(ABSOLUTE_PATH, doc="Folder that exists on every node.")},
            required=("path",),
            doc="Source: a folder of the nodes.",
        ),
    },
    required=("name", "mountPath"),
)

TOLERATION = section(
    {
        "key": text(doc="Key of the taint; empty with `Exists` means every taint."),
        "operator": {**choice("Exists", "Equal"), "description": "How key and value are compared."},
        "value": text(doc="Value of the taint, for `Equal`."),
        "effect": {
            **choice("NoSchedule", "PreferNoSchedule", "NoExecute"),
            "description": "Effect of the taint; left out means every effect.",
        },
        "tolerationSeconds": {**whole(0), "description": "Seconds a NoExecute taint is tolerated."},
    }
)

FRAME: dict[str, Schema] = {
    "image": section(
        {
            "repository": text(r"^[^\s@]+$", optional=True),
            "tag": text(r"^[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}$", optional=True),
            "digest": text(r"^sha256:[0-9a-f]{64}$", optional=True),
            "pullPolicy": choice("IfNotPresent", "Always", "Never"),
            "pullSecrets": list_of(text(DNS_NAME)),
        }
    ),
    "run": section({"id": text(DNS_NAME, longest=63)}),
    "resources": section(
        {
            "gpus": whole(0, 256),
            "gpuResource": text(RESOURCE_NAME),
            "cpu": {"type": ["string", "number"], "pattern": f"^$|{CPU}", "exclusiveMinimum": 0},
            "cpuBurst": switch(),
            "memory": text(MEMORY, optional=True),
        }
    ),
    "shm": section({"size": text(MEMORY, optional=True)}),
    "checkpoints": section(
        {
            "size": text(MEMORY),
            "storageClass": text(DNS_NAME, optional=True),
            "accessMode": choice("ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"),
            "existingClaim": text(DNS_NAME, optional=True),
            "keep": switch(),
        }
    ),
    "datasets": list_of(DATASET),
    "network": section(
        {
            "interface": text(r"^[^\s/]{1,15}$", optional=True),
            "ncclDebug": choice("", "VERSION", "WARN", "INFO", "TRACE"),
            "env": map_of_texts(VARIABLE),
        }
    ),
    "scheduling": section(
        {
            "nodeSelector": map_of_texts(),
            "tolerations": list_of(TOLERATION),
            "affinity": section(
                {
                    "nodeAffinity": {"type": "object", "description": "As in the Kubernetes API."},
                    "podAffinity": {"type": "object", "description": "As in the Kubernetes API."},
                    "podAntiAffinity": {"type": "object", "description": "As in the Kubernetes API."},
                }
            ),
            "priorityClassName": text(DNS_NAME, optional=True),
            "nodeProfile": choice("ignored", "preferred", "required"),
        }
    ),
    "podAnnotations": map_of_texts(),
    "podLabels": map_of_texts(),
    "terminationGracePeriodSeconds": whole(1, 86400),
    "serviceAccount": section({"create": switch(), "name": text(DNS_NAME, optional=True)}),
    "securityContext": section(
        {
            "runAsUser": whole(1),
            "runAsGroup": whole(1),
            "fsGroup": whole(1),
            "supplementalGroups": list_of(whole(1)),
        }
    ),
}
