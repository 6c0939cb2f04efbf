"""Which pods a drain moves, which it leaves, and what the API's refusals are called."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from roles.drain.filter_plugins import drain
from roles.drain.library import drain_evict
from scripts.cache import REPO
from tests.roles.templating import evaluate

ROLE = REPO / "roles/drain"
TRAINING = {"app.kubernetes.io/name": "rankzero"}
RUN = "app.kubernetes.io/instance"


def pod(name: str, owner: str = "ReplicaSet", **parts: Any) -> dict[str, Any]:
    """A pod as the API shows it; ``parts`` are added to its metadata, spec or status."""
    owners = [{"kind": owner, "controller": True}] if owner else []
    return {
        "metadata": {"namespace": "a", "name": name, "uid": f"uid-{name}", "ownerReferences": owners}
        | parts.get("metadata", {}),
        "spec": {"terminationGracePeriodSeconds": 30} | parts.get("spec", {}),
        "status": {"phase": "Running"} | parts.get("status", {}),
    }


def planned(*pods: dict[str, Any], unmanaged: str = "refuse", emptydir: str = "refuse") -> dict[str, Any]:
    return drain.plan(pods, unmanaged, emptydir, TRAINING, RUN)


def evicted(*pods: dict[str, Any], **choices: str) -> list[str]:
    return [one["name"] for one in planned(*pods, **choices)["evict"]]


DISK = {"volumes": [{"name": "data", "emptyDir": {}}]}
MEMORY = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
EXPERIMENT = {"labels": TRAINING | {RUN: "mnist"}}


def test_an_empty_node_has_nothing_to_evict() -> None:
    assert planned() == {"evict": [], "refusals": [], "grace": 0}


@pytest.mark.parametrize(
    "stays",
    [
        pod("proxy", "DaemonSet", spec=DISK),
        pod("etcd", "", metadata={"annotations": {"kubernetes.io/config.mirror": "hash"}}),
        pod("done", "", status={"phase": "Succeeded"}),
        pod("broken", spec=DISK, status={"phase": "Failed"}),
    ],
    ids=["DaemonSet", "static", "succeeded", "failed"],
)
def test_what_a_drain_cannot_or_need_not_move_stays_and_refuses_nothing(stays: dict[str, Any]) -> None:
    assert planned(stays, pod("plain")) == planned(pod("plain"))


@pytest.mark.parametrize(
    ("refused", "argument", "words"),
    [
        (pod("alone", ""), "unmanaged", "a/alone has no controller .* drain_unmanaged_pods to delete"),
        (pod("alone", spec=DISK), "emptydir", "a/alone keeps data in an emptyDir.* drain_emptydir_pods to delete"),
    ],
)
def test_a_pod_that_would_be_lost_is_refused_by_name_unless_allowed(
    refused: dict[str, Any], argument: str, words: str
) -> None:
    refusals = planned(refused)["refusals"]

    assert len(refusals) == 1
    assert re.search(words, refusals[0])
    assert planned(refused, **{argument: "delete"})["refusals"] == []
    assert evicted(refused, **{argument: "delete"}) == ["alone"]


def test_memory_volumes_and_an_experiment_s_scratch_are_no_data() -> None:
    assert (
        planned(pod("a", spec=MEMORY), pod("mnist-0", "StatefulSet", metadata=EXPERIMENT, spec=DISK))["refusals"] == []
    )


def test_a_pod_that_is_ending_already_is_waited_for_whatever_it_is() -> None:
    ending = pod("alone", "", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, spec=DISK)

    assert (evicted(ending), planned(ending)["refusals"]) == (["alone"], [])


def test_an_experiment_is_named_with_its_namespace_and_other_pods_with_its_labels_are_not_experiments() -> None:
    pods = planned(pod("mnist-0", metadata=EXPERIMENT), pod("other", metadata={"labels": {RUN: "web"}}))["evict"]

    assert [one["experiment"] for one in pods] == ["a/mnist", ""]


def test_the_longest_grace_period_counts() -> None:
    assert planned(pod("a"), pod("b", spec={"terminationGracePeriodSeconds": 600}))["grace"] == 600


@pytest.mark.parametrize(("allowed", "status"), [(False, "waiting"), (True, "ok")])
def test_pods_are_evicted_only_with_leave(allowed: bool, status: str) -> None:
    assert drain.report(planned(pod("a")), allowed)["status"] == status


def test_without_leave_the_report_names_pods_experiments_and_the_argument() -> None:
    why = drain.report(planned(pod("mnist-0", metadata=EXPERIMENT)), False)["why"]

    assert "a/mnist-0" in why
    assert "a/mnist would be told to save" in why
    assert "drain_ok=true" in why


def test_a_node_with_nothing_to_evict_needs_no_leave() -> None:
    assert drain.report(planned(pod("proxy", "DaemonSet")), False)["status"] == "ok"


def test_a_refusal_fails_the_drain_even_with_leave() -> None:
    found = drain.report(planned(pod("alone", "")), True)

    assert (found["status"], len(found["findings"])) == ("failed", 1)


def test_the_api_server_s_refusal_is_told_in_its_words_with_the_budget_s_name() -> None:
    body = {
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {
            "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods"}]
        },
    }

    assert "The disruption budget web needs" in drain_evict.reason(json.dumps(body))
    assert drain_evict.reason('{"message": "two budgets"}') == "two budgets"


def test_a_condition_that_holds_is_asked_once_even_with_no_time_left() -> None:
    asked: list[None] = []

    def condition() -> bool:
        asked.append(None)
        return True

    assert drain_evict.holds_within(0, condition)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"drain_timeout": 0}, "drain_timeout is 0"),
        ({"drain_training_wait": "-1"}, "drain_training_wait is -1"),
        ({"machine_kubeconfig": ""}, "machine_kubeconfig is empty"),
    ],
)
def test_arguments_that_cannot_be_followed_are_refused(arguments: dict[str, Any], words: str) -> None:
    refusals = evaluate(ROLE, "__drain_refusals", {"machine_kubeconfig": "/k"} | arguments)

    assert len(refusals) == 1
    assert words in refusals[0]


def test_the_defaults_are_accepted_and_evict_nothing_unasked() -> None:
    assert evaluate(ROLE, "__drain_refusals", {"machine_kubeconfig": "/k"}) == []
    assert evaluate(ROLE, "drain_ok", {}) is False
