"""Types of the Kubernetes API that stand in the values as they are, from the official client, as schema definitions."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from scripts.generate.frame import (
    AFFINITY,
    CIDR,
    DNS_LABEL,
    EGRESS_RULE,
    INGRESS_RULE,
    KEY,
    LABEL_VALUE,
    Schema,
    choice,
    list_of,
    map_of_texts,
    section,
    text,
    whole,
)

ROOTS = (AFFINITY, EGRESS_RULE, INGRESS_RULE)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_FIELD = section(
    {
        "key": choice("metadata.name"),
        "operator": choice("In", "NotIn"),
        "values": {**list_of(text()), "minItems": 1, "maxItems": 1},
    },
    required=("key", "operator", "values"),
)

# What the API server checks beyond the types. https://kubernetes.io/docs/reference/kubernetes-api/
CHECKS: dict[str, dict[str, Schema]] = {
    "V1IPBlock": {"cidr": text(CIDR), "except": list_of(text(CIDR))},
    "V1LabelSelector": {"matchLabels": map_of_texts(KEY, LABEL_VALUE)},
    "V1LabelSelectorRequirement": {
        "key": text(KEY),
        "operator": choice(*OPERATORS),
        "values": list_of(text(LABEL_VALUE)),
    },
    "V1NetworkPolicyPort": {
        "protocol": choice("TCP", "UDP", "SCTP"),
        "port": {"type": ["integer", "string"], "minimum": 1, "maximum": 65535, "pattern": DNS_LABEL},
        "endPort": whole(1, 65535),
    },
    "V1NodeSelector": {"nodeSelectorTerms": {"minItems": 1}},
    "V1NodeSelectorRequirement": {
        "key": text(KEY),
        "operator": choice(*OPERATORS, "Gt", "Lt"),
        "values": list_of(text(LABEL_VALUE)),
    },
    "V1NodeSelectorTerm": {"matchFields": list_of(NODE_FIELD)},
    "V1PodAffinityTerm": {"namespaces": list_of(text(DNS_LABEL)), "topologyKey": text(KEY)},
    "V1PreferredSchedulingTerm": {"weight": whole(1, 100)},
    "V1WeightedPodAffinityTerm": {"weight": whole(1, 100)},
}
VALUES_BY_OPERATOR: dict[tuple[str, ...], Schema] = {
    ("In", "NotIn"): {"required": ["values"], "properties": {"values": {"minItems": 1}}},
    ("Exists", "DoesNotExist"): {"properties": {"values": {"maxItems": 0}}},
    ("Gt", "Lt"): {
        "required": ["values"],
        "properties": {"values": {"minItems": 1, "maxItems": 1, "items": {"pattern": "^[0-9]+$"}}},
    },
}
REQUIREMENT: Schema = {
    "allOf": [
        {"if": {"required": ["operator"], "properties": {"operator": {"enum": list(operators)}}}, "then": rule}
        for operators, rule in VALUES_BY_OPERATOR.items()
    ]
}
RELATIONS: dict[str, Schema] = {
    "V1LabelSelectorRequirement": REQUIREMENT,
    "V1NetworkPolicyPeer": {
        "minProperties": 1,
        "dependentSchemas": {"ipBlock": {"maxProperties": 1}},
    },
    "V1NetworkPolicyPort": {"dependentRequired": {"endPort": ["port"]}},
    "V1NodeSelectorRequirement": REQUIREMENT,
    "V1PodAffinityTerm": {
        "dependentRequired": {"matchLabelKeys": ["labelSelector"], "mismatchLabelKeys": ["labelSelector"]}
    },
}


def definitions() -> dict[str, Schema]:
    """The schema's ``$defs``: every type of :data:`ROOTS` and below, closed and checked as the API server does."""
    types: dict[str, Schema] = {}
    for name in ROOTS:
        root: Schema = getattr(client, name).model_json_schema(by_alias=True)
        types |= {**root.pop("$defs"), name: root}
    return {
        name: {**_definition(types[name], CHECKS.get(name, {})), **RELATIONS.get(name, {})} for name in sorted(types)
    }


def _definition(model: Schema, checks: dict[str, Schema]) -> Schema:
    properties = {key: {**_type(part), **checks.get(key, {})} for key, part in model["properties"].items()}
    return section(properties, required=tuple(model.get("required", ())))


def _type(part: Schema) -> Schema:
    """Only the type: without the prose, and without the client's null, which Helm's values never hold."""
    kept, *_ = (option for option in part.get("anyOf", [part]) if option.get("type") != "null")
    words: dict[str, Any] = {word: kept[word] for word in ("type", "$ref", "additionalProperties") if word in kept}
    return {**words, "items": _type(kept["items"])} if "items" in kept else words
