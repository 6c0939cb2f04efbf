"""The hand-written part of the chart's schema: every value that does not come from the launcher's settings.

Descriptions are not repeated here: :mod:`scripts.generate.schema` takes them from the comments in
``values.yaml``. Only keys of list items, which ``values.yaml`` cannot show, carry their ``doc`` here.
"""

from __future__ import annotations

from typing import Any

from rankzero import contract

Schema = dict[str, Any]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_ABOVE_0 = r"([1-9][0-9]*(\.[0-9]+)?|0\.0*[1-9][0-9]*)"
_PATH_PART = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"

DNS_LABEL = f"^{_LABEL}$"
DNS_NAME = f"^{_DOMAIN}$"
KEY = f"^({_DOMAIN}/)?{_NAME}$"
"""Key of a label, an annotation or a taint."""
LABEL_VALUE = f"^({_NAME})?$"
RESOURCE_NAME = f"^{_DOMAIN}/{_NAME}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
TAG = "[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}"
DIGEST = "sha256:[0-9a-f]{64}"
REFERENCE = f"^({_DOMAIN}(:[0-9]+)?/)?{_PATH_PART}(/{_PATH_PART})*(:{TAG})?(@{DIGEST})?$"
"""An image: a registry, with its port or without, and names. validate.yaml says where tag and digest belong."""
MEMORY = f"^{_ABOVE_0}(k|M|G|T|Ki|Mi|Gi|Ti)$"
CPU = f"^({_ABOVE_0}|[1-9][0-9]*m)$"
DURATION = "^[1-9][0-9]*(ms|s|m|h)$"
"""As Prometheus writes it."""
PATH = r"^(/\.?[A-Za-z0-9_][-.A-Za-z0-9_]*)+$"
"""Absolute path that is spelled one way only: without `.`, `..`, `//` and a `/` at the end."""
CARD = r"^[^,\s]([^,]*[^,\s])?$"
"""Model or UUID of a card; HAMi takes several with commas between them."""
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
CIDR = rf"^({_BYTE}(\.{_BYTE}){{3}}/(3[0-2]|[12]?[0-9])|[0-9a-fA-F.]*:[0-9a-fA-F:.]+/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$"
"""Of IPv4 or IPv6, the latter not to the letter."""
INTERFACES = r"^[A-Za-z0-9][-_.A-Za-z0-9]{0,14}(,[A-Za-z0-9][-_.A-Za-z0-9]{0,14})*$"
"""Names of network interfaces, with commas: no prefixes, no `^` and `=`, which gloo does not know."""
AFFINITY, EGRESS_RULE, INGRESS_RULE = "V1Affinity", "V1NetworkPolicyEgressRule", "V1NetworkPolicyIngressRule"
"""Definitions of the API's types, see :mod:`scripts.generate.api_types`."""
LARGEST_ID = 2**31 - 1
"""Of a user or group, in the Kubernetes API."""


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


def object_name(*, optional: bool = False, doc: str = "") -> Schema:
    """Name of a Kubernetes object."""
    return text(DNS_NAME, optional=optional, longest=253, doc=doc)


def choice(*values: str) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}


def api_type(name: str) -> Schema:
    """A type of the Kubernetes API, as it is."""
    return {"type": "object", "$ref": f"#/$defs/{name}"}


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


def map_of_texts(names: str, values: str = "") -> Schema:
    """A mapping with free keys to texts, which match these patterns.

    `propertyNames` would say the same, but Helm's message about it names the path of another key.
    """
    return {"type": "object", "additionalProperties": False, "patternProperties": {names: text(values)}}


def _described(schema: Schema, doc: str) -> Schema:
    return {"description": doc, **schema} if doc else schema


SECRET_KEY = section(
    {"secret": object_name(), "key": text(r"^[-._A-Za-z0-9]{1,253}$")},
    required=("secret", "key"),
)

TOLERATION = section(
    {
        "key": text(KEY, optional=True, doc="Key of the taint; empty with `Exists` means every taint."),
        "operator": {**choice("Exists", "Equal"), "description": "How key and value are compared."},
        "value": text(LABEL_VALUE, doc="Value of the taint, for `Equal`."),
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
            "repository": text(REFERENCE, optional=True),
            "tag": text(f"^{TAG}$", optional=True),
            "digest": text(f"^{DIGEST}$", optional=True),
            "pullPolicy": choice("IfNotPresent", "Always", "Never"),
            "pullSecrets": list_of(object_name()),
        }
    ),
    "workload": section(
        {
            "kind": choice(*contract.WORKLOAD_KINDS),
            "backoffLimit": whole(0, 2**31 - 1),
            "activeDeadlineSeconds": whole(0, 2**31 - 1),
            "ttlSecondsAfterFinished": whole(0, 2**31 - 1),
        }
    ),
    # A number too: that is what `--set run.id=2` gives.
    "run": section({"id": {"type": ["string", "integer"], "pattern": DNS_NAME, "maxLength": 63, "minimum": 0}}),
    "resources": section(
        {
            "gpus": whole(0, 256),
            "gpuResource": text(RESOURCE_NAME),
            "cpu": {"type": ["string", "number"], "pattern": f"^$|^auto$|{CPU}", "exclusiveMinimum": 0},
            "cpuBurst": switch(),
            "memory": text(MEMORY, optional=True),
            "ephemeralStorage": text(MEMORY, optional=True),
            "guaranteed": switch(),
            "hugepages": map_of_texts(names="^(2Mi|32Mi|512Mi|1Gi|16Gi)$", values=r"^[1-9][0-9]*(Mi|Gi|Ti)$"),
        }
    ),
    "network": section(
        {
            "fabric": section(
                {
                    "preset": choice("auto", "ethernet", "infiniband", "roce", "nvlink-only"),
                    "required": switch(),
                    "devices": list_of(text(r"^[A-Za-z0-9][-_.A-Za-z0-9]*(:[0-9]+)?$")),
                    "trafficClass": whole(-1, 255),
                    "resource": section({"name": text(RESOURCE_NAME, optional=True), "count": whole(1, 256)}),
                }
            ),
            "interface": text(INTERFACES, optional=True),
            "fromNodeProfile": switch(),
            "ipFamily": choice("", "IPv4", "IPv6"),
            "secondary": list_of(text(rf"^({_LABEL}/)?{_DOMAIN}(@[a-z][-a-z0-9]{{0,14}})?$")),
            "hostNetwork": switch(),
            "meshOptOut": switch(),
            "ncclDebug": choice("", "VERSION", "WARN", "INFO", "TRACE"),
            "env": map_of_texts(names=VARIABLE),
        }
    ),
    "networkPolicy": section(
        {
            "enabled": switch(),
            "statusFromAnywhere": switch(),
            "ingress": list_of(api_type(INGRESS_RULE)),
            "egress": section({"restricted": switch(), "rules": list_of(api_type(EGRESS_RULE))}),
        }
    ),
    "secretEnv": {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {VARIABLE: SECRET_KEY},
    },
    "scheduling": section(
        {
            "nodeSelector": map_of_texts(KEY, LABEL_VALUE),
            "tolerations": list_of(TOLERATION),
            "affinity": api_type(AFFINITY),
            "avoidNodes": {**list_of(object_name()), "uniqueItems": True},
            "topology": section({"key": text(KEY, optional=True), "mode": choice("preferred", "required")}),
            "priorityClassName": object_name(optional=True),
            "runtimeClassName": object_name(optional=True),
            "schedulerName": object_name(optional=True),
            # Without quotes YAML reads `off` as false.
            "nodeProfile": {"enum": ["off", False, "preferred", "required"]},
            "nodeProfileHash": text("^[0-9a-f]{12}$", optional=True),
            "gang": choice("none", "native", "volcano", "coscheduling"),
            # Kueue's names are values of labels.
            "kueue": section({"queue": text(LABEL_VALUE), "priorityClass": text(LABEL_VALUE)}),
            "volcano": section({"queue": object_name(optional=True)}),
        }
    ),
    "hami": section(
        {
            "enabled": switch(),
            # As in a pod's resources, a number or a text; validate.yaml tells what HAMi makes of each form.
            "memory": {"type": ["string", "integer"], "minimum": 1},
            "memoryPercent": whole(0, 100),
            "cores": whole(0, 100),
            # HAMi accepts unknown policies without a word.
            "cardPolicy": choice("", "binpack", "spread", "mutex", "topology-aware", "numa"),
            "nodePolicy": choice("", "binpack", "spread"),
            "cardTypes": list_of(text(CARD)),
            "avoidCardTypes": list_of(text(CARD)),
            "cardUuids": list_of(text(CARD)),
            "avoidCardUuids": list_of(text(CARD)),
            "passThrough": switch(),
            "ncclDirect": switch(),
        }
    ),
    "podAnnotations": map_of_texts(KEY),
    "podLabels": map_of_texts(KEY, LABEL_VALUE),
    "terminationGracePeriodSeconds": whole(1, 86400),
    "serviceAccount": section(
        {"create": switch(), "name": object_name(optional=True), "automount": {"enum": ["auto", True, False]}}
    ),
    "rbac": section({"create": switch()}),
    "podDisruptionBudget": section({"enabled": switch(), "maxUnavailable": whole(0, 10000)}),
    "monitoring": section(
        {
            "podMonitor": section(
                {"enabled": switch(), "interval": text(DURATION), "labels": map_of_texts(KEY, LABEL_VALUE)}
            ),
            "dashboard": section({"enabled": switch(), "labels": map_of_texts(KEY, LABEL_VALUE)}),
        }
    ),
    "securityContext": section(
        {
            "runAsUser": whole(1, LARGEST_ID),
            "runAsGroup": whole(1, LARGEST_ID),
            "fsGroup": whole(1, LARGEST_ID),
            "supplementalGroups": list_of(whole(1, LARGEST_ID)),
        }
    ),
}
