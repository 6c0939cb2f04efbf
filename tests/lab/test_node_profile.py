"""The role node_profile on a real Node object: what a node has earned, loses, and what reset takes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from scripts.lab import kube
from scripts.lab.podman import execute, podman
from scripts.lab.settings import WORKERS
from tests.lab.plays import Played, play

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NODE = WORKERS[0]
CONTENT = {"status": "ok", "why": "", "findings": [], "asked": {"somaxconn": 4096}}
WAITING = {**CONTENT, "status": "waiting", "why": "kubelet has to be restarted"}
SKIPPED = {**CONTENT, "status": "skipped", "why": "not of this test", "asked": {}}
OTHERS = ("preflight", "nvidia_driver", "container_runtime", "rdma", "cpu_manager", "device_plugin")
PROMISE = {contract.LABEL_NODE_PROFILE, contract.LABEL_NODE_PROFILE_HASH}


def metadata(kind: str) -> dict[str, str]:
    """Our labels or annotations of the worker."""
    node: dict[str, Any] = json.loads(kube.kubectl("get", "node", NODE.name, "--output", "json"))
    return {name: value for name, value in node["metadata"][kind].items() if name.startswith(contract.API_GROUP)}


@pytest.fixture
def folder(lab: None, tmp_path: Path) -> Iterator[Path]:  # noqa: ARG001
    """A folder for passports, and a worker that afterwards has the labels again that it had."""
    before = {kind: metadata(kind) for kind in ("labels", "annotations")}
    try:
        yield tmp_path
    finally:
        play(tmp_path, NODE, "node_profile", "reset")
        patch = {"metadata": before}
        kube.kubectl("patch", "node", NODE.name, "--type", "merge", "--patch", json.dumps(patch))


def profile(folder: Path, report: dict[str, Any], **more: Any) -> Played:
    given = {f"{role}_report": SKIPPED for role in OTHERS} | {"node_profile_passports": str(folder)}
    return play(folder, NODE, "node_profile", **{**given, "host_tuning_report": report, **more})


def test_a_node_that_has_earned_it_carries_its_profile_and_a_second_run_changes_nothing(folder: Path) -> None:
    first = profile(folder, CONTENT)
    again = profile(folder, CONTENT)

    assert first.report["status"] == "ok", first.output
    assert metadata("labels").keys() == PROMISE  # without GPU, driver and CPU manager
    assert metadata("annotations") == {
        contract.ANNOTATION_INTERFACES: "eth0",
        contract.ANNOTATION_HCAS: "",
        contract.ANNOTATION_RAILS: "[]",
    }
    kept = json.loads(execute(NODE.name, "cat", contract.NODE_PROFILE_FILE))
    assert kept["hash"] == metadata("labels")[contract.LABEL_NODE_PROFILE_HASH]
    assert again.changed() == []


def test_every_run_leaves_a_passport_for_people_and_one_for_programs(folder: Path) -> None:
    profile(folder, WAITING)

    page = (folder / f"{NODE.name}.md").read_text(encoding="utf-8")
    passport = json.loads((folder / f"{NODE.name}.json").read_text(encoding="utf-8"))
    assert "the node carries no label." in page
    assert "| host_tuning | waiting | kubelet has to be restarted |" in page
    assert passport["labelled"] is False
    assert passport["hardware"]["hostname"] == NODE.name


def test_a_role_that_waits_takes_the_promise_and_leaves_what_is_known(folder: Path) -> None:
    profile(folder, CONTENT)
    waiting = profile(folder, WAITING)

    assert (waiting.report["status"], waiting.report["why"]) == (
        "waiting",
        "no label while host_tuning: kubelet has to be restarted",
    )
    assert metadata("labels") == {}
    assert metadata("annotations")[contract.ANNOTATION_INTERFACES] == "eth0"


def test_a_node_whose_gpus_are_not_offered_loses_its_label_and_the_run_fails(folder: Path) -> None:
    profile(folder, CONTENT)

    done = profile(folder, CONTENT, device_plugin_report={**CONTENT, "status": "failed", "why": "7 of 8 are offered."})

    assert not done.succeeded
    assert "no label while device_plugin: 7 of 8 are offered." in done.output
    assert PROMISE.isdisjoint(metadata("labels"))


def test_a_cordon_that_a_run_left_behind_is_lifted_and_one_of_somebody_else_keeps_the_label_off(folder: Path) -> None:
    kube.kubectl("cordon", NODE.name)
    try:
        foreign = profile(folder, CONTENT)
        kube.kubectl("annotate", "node", NODE.name, "rankzero.io/cordoned=true")
        own = profile(folder, CONTENT)
    finally:
        kube.kubectl("uncordon", NODE.name)

    assert foreign.report["status"] == "waiting"
    assert "cordoned, by somebody else" in foreign.report["why"]
    assert own.report["status"] == "ok", own.output
    assert "Uncordon the node" in " ".join(own.changed())
    assert "rankzero.io/cordoned" not in metadata("annotations")


def test_in_check_mode_a_label_that_is_gone_is_found_and_not_written(folder: Path) -> None:
    profile(folder, CONTENT)
    kube.kubectl("label", "node", NODE.name, f"{contract.LABEL_NODE_PROFILE}-")

    looked = profile(folder, CONTENT, options=("--check",))

    assert looked.report["status"] == "failed"
    assert contract.LABEL_NODE_PROFILE in looked.report["why"]
    assert contract.LABEL_NODE_PROFILE not in metadata("labels")


def test_a_name_that_the_cluster_does_not_know_is_refused_by_its_variable(folder: Path) -> None:
    refused = profile(folder, CONTENT, machine_node_name="elsewhere")

    assert not refused.succeeded
    assert "has no node elsewhere. Give the node's name in machine_node_name" in refused.output


@pytest.mark.parametrize("point", ["withdraw", "reset"])
def test_a_label_is_kept_with_all_that_it_promises_where_the_cluster_given_does_not_have_the_node(
    folder: Path, point: str
) -> None:
    profile(folder, CONTENT)

    refused = play(folder, NODE, "node_profile", point, machine_node_name="elsewhere")

    assert not refused.succeeded
    assert "the cluster of machine_kubeconfig has no such node" in " ".join(refused.output.split())
    assert metadata("labels").keys() == PROMISE
    assert json.loads(execute(NODE.name, "cat", contract.NODE_PROFILE_FILE))["labelled"]


def test_reset_leaves_nothing_on_the_node_object_and_no_profile(folder: Path) -> None:
    profile(folder, CONTENT)

    play(folder, NODE, "node_profile", "reset")

    assert metadata("labels") == metadata("annotations") == {}
    assert podman("exec", NODE.name, "sh", "-c", f"test -e {contract.NODE_PROFILE_FILE} || echo gone").strip() == "gone"
