"""On which nodes pods may run, and which scheduler places them."""

from __future__ import annotations

from typing import Any

import pytest

from rankzero import contract
from tests.chart.rendering import minimal, pod_spec, refusals, render

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def affinity(changes: dict[str, Any]) -> dict[str, Any]:
    """The pods' affinity."""
    found: dict[str, Any] = pod_spec(render(minimal({"scheduling.nodeProfile": "off", **changes}))).get("affinity", {})
    return found


def node_terms(changes: dict[str, Any]) -> list[dict[str, Any]]:
    """What a node must be like; one term that fits is enough."""
    terms: list[dict[str, Any]] = affinity(changes)["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


def test_nodes_that_are_to_be_avoided_are_named_as_kubectl_prints_them() -> None:
    """Known failure A10: a bad node eats every retry. The label with a host name can differ from the node's name."""
    fields = [
        {"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("gpu-1", "gpu-2.example.com")
    ]
    assert node_terms({"scheduling.avoidNodes": ["gpu-1", "gpu-2.example.com"]}) == [{"matchFields": fields}]


def test_what_must_hold_is_added_to_each_term_of_the_users() -> None:
    """Terms are alternatives: a term without it would let the pods in."""
    gpus = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": [kind]}]} for kind in ("h100", "h200")]
    terms = node_terms(
        {
            "scheduling.affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": gpus}}},
            "scheduling.avoidNodes": ["gpu-1"],
            "scheduling.nodeProfile": "required",
        }
    )
    assert [[rule["key"] for rule in term["matchExpressions"]] for term in terms] == [
        ["gpu", contract.LABEL_NODE_PROFILE]
    ] * 2
    assert all(term["matchFields"] for term in terms)


def test_the_settings_with_which_nodes_were_prepared_can_be_required() -> None:
    (term,) = node_terms({"scheduling.nodeProfile": "required", "scheduling.nodeProfileHash": "0a1b2c3d4e5f"})
    assert term["matchExpressions"] == [
        {"key": contract.LABEL_NODE_PROFILE, "operator": "Exists"},
        {"key": contract.LABEL_NODE_PROFILE_HASH, "operator": "In", "values": ["0a1b2c3d4e5f"]},
    ]


def test_pods_go_to_the_rack_of_the_release_if_they_can() -> None:
    found = affinity({"scheduling.topology.key": "example.com/rack"})["podAffinity"]
    selector = {"matchLabels": {contract.LABEL_INSTANCE: "mnist", contract.LABEL_NAME: contract.APP_NAME}}
    term = {"topologyKey": "example.com/rack", "labelSelector": selector}
    assert found == {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}
    strict = {"scheduling.topology": {"key": "example.com/rack", "mode": "required"}}
    assert affinity(strict)["podAffinity"] == {REQUIRED: [term]}


def test_without_a_rack_a_profile_and_nodes_to_avoid_there_is_no_affinity() -> None:
    assert affinity({}) == {}


def test_the_values_are_left_as_they_are_for_the_next_template() -> None:
    """Rules are added to a copy: the values are one object for all templates."""
    own: dict[str, Any] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": []}]}}}
    changes = {"scheduling.affinity": own, "scheduling.avoidNodes": ["a"]}
    (term,) = node_terms(changes)
    assert len(term["matchFields"]) == 1


def test_runtime_and_scheduler_are_those_that_the_values_name() -> None:
    spec = pod_spec(render(minimal({"scheduling.runtimeClassName": "nvidia", "scheduling.schedulerName": "1"})))
    assert (spec["runtimeClassName"], spec["schedulerName"]) == ("nvidia", "1")
    assert not {"runtimeClassName", "schedulerName"} & pod_spec(render(minimal({}))).keys()


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"nodes": 2, "scheduling.nodeSelector": {HOST: "gpu-1"}},
        "scheduling.nodeSelector[kubernetes.io/hostname] is gpu-1 but nodes is 2, and a machine takes one pod of the "
        "release: set nodes to 1 or choose a label that 2 machines carry",
    ),
    (
        {"scheduling.nodeSelector": {HOST: "gpu-1"}, "scheduling.avoidNodes": ["gpu-1"]},
        "scheduling.nodeSelector[kubernetes.io/hostname] is gpu-1, which scheduling.avoidNodes forbids: "
        "remove it from one of them",
    ),
    (
        {"scheduling.topology.key": HOST},
        "scheduling.topology.key is kubernetes.io/hostname, and pods of a release never share a node: "
        "name the label of a rack or network block",
    ),
    *(
        (
            {"scheduling.nodeProfileHash": "0a1b2c3d4e5f", "scheduling.nodeProfile": profile},
            f"scheduling.nodeProfileHash is 0a1b2c3d4e5f but scheduling.nodeProfile is {said}, which admits nodes "
            "without it: set nodeProfile to required or remove the hash",
        )
        for profile, said in (("preferred", "preferred"), ("off", "off"), (False, "off"))
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=lambda case: str(case)[:60])
def test_a_placement_that_no_node_can_satisfy_is_refused(changes: dict[str, Any], sentence: str) -> None:
    assert refusals(minimal(changes)) == [sentence]


def test_one_pod_may_be_sent_to_one_machine() -> None:
    assert pod_spec(render(minimal({"scheduling.nodeSelector": {HOST: "gpu-1"}})))["nodeSelector"] == {HOST: "gpu-1"}


def test_a_node_is_not_to_be_avoided_twice() -> None:
    (sentence,) = refusals(minimal({"scheduling.avoidNodes": ["a", "a"]}))
    assert "/scheduling/avoidNodes" in sentence
