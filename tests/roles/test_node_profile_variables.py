"""What the role writes about a machine, by Ansible's own templating: rails, labels, passport, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankzero import contract
from roles.node_profile.filter_plugins.node_profile_features import described, features
from roles.rdma.filter_plugins.rdma_topology import hcas
from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/node_profile"
SAMPLES = sorted((REPO / "tests/roles/samples").glob("*.yml"))
DGX = REPO / "tests/roles/samples/dgx-h100.yml"
EVERY_SAMPLE = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)


def reports(facts: dict[str, Any]) -> dict[str, Any]:
    """What the other roles leave on a node that is as asked."""
    content = {"status": "ok", "why": "", "findings": []}
    ports = hcas(facts["rdma"], facts["gpus"], [], "ipv4")
    others = ("preflight", "nvidia_driver", "container_runtime", "device_plugin")
    return {
        **{f"{role}_report": {**content, "asked": {}} for role in others},
        "host_tuning_report": {**content, "asked": {"somaxconn": 4096}},
        "rdma_report": {**content, "asked": {}, "hcas": ports},
        "cpu_manager_report": {**content, "asked": {}, "policies": {"cpu": "static"}},
    }


def on(facts: dict[str, Any], expression: str, **more: Any) -> Any:
    variables = {
        "machine_facts": facts,
        "machine_kubeconfig": "admin.conf",
        "__machine_node": facts["hostname"],
        "inventory_hostname": "node",
        "inventory_dir": "/srv/nodes",
        "ansible_inventory_sources": ["/srv/nodes/all.yml"],
        "__node_profile_live": {"text": "", "object": {"labels": {}, "annotations": {}}},
        **more,
    }
    return evaluate(ROLE, expression, {"hostvars": {"node": reports(facts) | variables}} | variables)


@EVERY_SAMPLE
def test_every_machine_has_a_rail_for_each_gpu_and_a_page(sample: Any) -> None:
    facts = load(sample)

    assert [rail["gpu"] for rail in on(facts, "__node_profile_network.rails")] == list(range(len(facts["gpus"])))
    assert features(facts, {})["kernel"] == facts["kernel"]["release"]
    assert page(facts).startswith(f"# {facts['hostname']}\n")


def page(facts: dict[str, Any]) -> str:
    report = on(facts, "__node_profile_report")
    template = ROLE / "templates/passport.md.j2"
    return str(on(facts, f"lookup('ansible.builtin.template', '{template}')", node_profile_report=report))


def test_the_page_shows_what_nvidia_smi_says_beside_what_the_pci_bus_does() -> None:
    """Two ways to the same answer: on a machine where they differ, one of them is to be looked into."""
    rows = [row.split(" | ") for row in page(load(DGX)).splitlines() if row.startswith("| 0 | 0000:")]

    assert [(row[3], row[5].rstrip(" |")) for row in rows] == [("mlx5_0", "mlx5_0")]


def test_each_gpu_of_a_dgx_has_its_own_adapter() -> None:
    rails = on(load(DGX), "__node_profile_network.rails")

    assert len({tuple(rail["hcas"]) for rail in rails}) == 8
    assert all(len(rail["hcas"]) == 1 for rail in rails)


def test_labels_and_annotations_are_those_that_the_chart_reads() -> None:
    facts = load(DGX)
    labels, annotations = on(facts, "__node_profile_labels"), on(facts, "__node_profile_annotations")

    assert labels == {
        contract.LABEL_NODE_PROFILE: "training",
        contract.LABEL_NODE_PROFILE_HASH: on(facts, "__node_profile_hash"),
        contract.LABEL_GPU_COUNT: "8",
        contract.LABEL_DRIVER_BRANCH: facts["driver"]["loaded"].split(".")[0],
        contract.LABEL_CPU_MANAGER: "static",
    }
    assert annotations[contract.ANNOTATION_INTERFACES] == facts["default_interface"]
    assert len(json.loads(annotations[contract.ANNOTATION_RAILS])) == 8


def test_a_node_without_gpus_has_no_label_about_them() -> None:
    labels = on(load(REPO / "tests/roles/samples/no-gpu.yml"), "__node_profile_labels")

    assert labels[contract.LABEL_GPU_COUNT] is labels[contract.LABEL_DRIVER_BRANCH] is None


def test_named_interfaces_carry_training_instead_of_that_of_the_default_route() -> None:
    facts = load(DGX)
    name = next(nic["name"] for nic in facts["nics"] if nic["kind"] == "physical")

    assert on(facts, "__node_profile_network.interfaces", node_profile_interfaces=[name]) == [name]


@pytest.mark.parametrize(("before", "lost"), [("8", False), ("4", False), ("9", True), (None, False)])
def test_a_gpu_that_was_there_when_the_node_was_labelled_is_missed(before: str | None, lost: bool) -> None:
    facts = load(DGX)
    labels = {contract.LABEL_GPU_COUNT: before} if before else {}
    live = {"text": "", "object": {"labels": labels, "annotations": {}}}

    obstacles = on(facts, "__node_profile_obstacles", __node_profile_live=live)

    assert obstacles == (["The node has 8 GPUs, and had 9 when it was labelled."] if lost else [])


def test_what_is_there_already_is_not_written_again() -> None:
    facts = load(DGX)
    live = {
        "text": on(facts, "__node_profile_text"),
        "object": {
            "labels": on(facts, "__node_profile_labels") | {"kubernetes.io/hostname": "dgx"},
            "annotations": on(facts, "__node_profile_annotations"),
        },
    }

    assert on(facts, "__node_profile_as_asked", __node_profile_live=live) is True
    assert on(facts, "__node_profile_report.status", __node_profile_live=live) == "ok"


def test_a_node_that_lost_its_label_is_reported_by_the_name_of_what_it_lost() -> None:
    facts = load(DGX)

    assert on(facts, "__node_profile_report.status") == "failed"
    assert contract.LABEL_NODE_PROFILE in on(facts, "__node_profile_report.why")


def unlinked(facts: dict[str, Any]) -> dict[str, Any]:
    """The same machine with its default interface unplugged."""
    name = facts["default_interface"]
    return facts | {"nics": [nic | {"up": nic["up"] and nic["name"] != name} for nic in facts["nics"]]}


def earned(facts: dict[str, Any], **of_the_cluster: Any) -> dict[str, Any]:
    """What is on a node that has been labelled."""
    labels, annotations = on(facts, "__node_profile_labels"), on(facts, "__node_profile_annotations")
    written = {"labels": labels, "annotations": annotations, "cordoned": False, "unready": ""}
    return {"text": on(facts, "__node_profile_text"), "object": written | of_the_cluster}


def test_a_node_whose_training_interface_has_no_link_loses_its_label_and_the_run_fails() -> None:
    facts = unlinked(load(DGX))
    live = {"__node_profile_live": earned(facts)}

    (obstacle,) = on(facts, "__node_profile_obstacles", **live)
    assert "carries training, has no link" in obstacle
    assert on(facts, "__node_profile_report.status", **live) == "failed"
    assert on(facts, "__node_profile_report.why", **live) == obstacle


def test_a_node_that_the_cluster_calls_not_ready_has_no_label() -> None:
    facts = load(DGX)
    live = {"__node_profile_live": earned(facts, unready="container runtime is down")}

    assert on(facts, "__node_profile_obstacles", **live) == [
        "The cluster says that the node is not ready: container runtime is down"
    ]
    assert on(facts, "__node_profile_report.status", **live) == "failed"


def test_a_node_that_was_left_cordoned_by_a_run_has_an_error_and_one_cordoned_by_others_waits() -> None:
    facts = load(DGX)
    others = {"__node_profile_live": earned(facts, cordoned=True)}
    ours = {"__node_profile_live": earned(facts, cordoned=True, annotations={"rankzero.io/cordoned": "true"})}

    states = [
        on(facts, "[__node_profile_report.status, __node_profile_cordoned_by]", **live) for live in (others, ours)
    ]
    assert states == [["waiting", "others"], ["failed", "us"]]
    assert "cordoned, by somebody else" in on(facts, "__node_profile_report.why", **others)
    assert on(facts, "__node_profile_obstacles | length", **ours) == 1


def test_a_role_that_has_not_run_or_has_failed_keeps_the_label_off() -> None:
    facts = load(DGX)
    live = {"__node_profile_live": earned(facts)}
    failed = {"status": "failed", "why": "7 of 8 GPUs are offered.", "findings": [], "asked": {}}
    short = {"hostvars": {"node": {**reports(facts), "device_plugin_report": failed}}}
    absent = {"hostvars": {"node": {name: report for name, report in reports(facts).items() if name != "rdma_report"}}}

    assert on(facts, "__node_profile_obstacles", **live, **absent) == ["rdma has not run on the node"]
    assert on(facts, "__node_profile_failed", **live, **absent) == []
    assert on(facts, "__node_profile_failed", **live, **short) == ["device_plugin"]
    assert (
        on(facts, "__node_profile_report.why", **live, **short)
        == "no label while device_plugin: 7 of 8 GPUs are offered."
    )


def test_without_a_kubeconfig_nothing_of_the_cluster_is_missed_but_said() -> None:
    facts = load(DGX)
    live = {"text": on(facts, "__node_profile_text", machine_kubeconfig=""), "object": {}}
    bare = {"machine_kubeconfig": "", "__node_profile_live": live}

    assert on(facts, "__node_profile_refusals", **bare) == []
    assert on(facts, "__node_profile_report.status", **bare) == "ok"
    assert "machine_kubeconfig is empty" in on(facts, "__node_profile_findings[0].what", **bare)


def test_a_node_that_was_labelled_is_not_called_proved_without_its_cluster() -> None:
    facts = load(DGX)
    live = {"text": on(facts, "__node_profile_text"), "object": {}}

    (refusal,) = on(facts, "__node_profile_refusals", machine_kubeconfig="", __node_profile_live=live)

    assert "dgx-01 was labelled rankzero.io/node-profile by an earlier run" in refusal


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"node_profile_name": "two words"}, "node_profile_name is two words"),
        ({"node_profile_name": ""}, "cannot be the value of a label"),
        ({"node_profile_interfaces": ["eth9"]}, "node_profile_interfaces names eth9, which this node does not have"),
        (
            {"__node_profile_live": {"text": "", "object": {}}},
            "has no node dgx-01. Give the node's name in machine_node_name",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: dict[str, Any], sentence: str) -> None:
    (refusal,) = on(load(DGX), "__node_profile_refusals", **arguments)

    assert sentence in refusal


def test_the_folder_of_the_passports_is_never_read_as_part_of_the_inventory() -> None:
    facts = load(DGX)

    assert on(facts, "__node_profile_passports") == "/srv/nodes/passports"
    assert on(facts, "__node_profile_passports", ansible_inventory_sources=["/srv/nodes"]) == "/srv/passports"
    assert on(facts, "__node_profile_passports", node_profile_passports="/elsewhere") == "/elsewhere"


def test_the_page_has_the_rails_the_roles_and_what_to_do() -> None:
    text = page(load(DGX))

    assert "| GPUs | 8 x NVIDIA H100 80GB HBM3 |" in text
    assert "\n## Rails\n" in text
    assert "| host_tuning | ok |  |" in text
    assert "- error, node_profile: The node does not carry the profile" in text


def test_two_machines_that_differ_in_driver_and_mtu_differ_in_just_that() -> None:
    one, other = load(DGX), load(DGX)
    other["driver"] = other["driver"] | {"loaded": "575.57.08"}
    nic = next(nic for nic in other["nics"] if nic["kind"] == "physical")
    nic["mtu"] = 1234
    nodes = described({"a": {"machine_facts": one}, "b": {"machine_facts": other}}, ["a", "b"], [])

    odd = {name for name, value in nodes["a"]["features"].items() if nodes["b"]["features"].get(name) != value}

    assert odd == {"driver", f"MTU of {nic['name']}"}


def test_a_node_out_of_reach_has_the_message_of_the_attempt_to_read_it() -> None:
    nodes = described(
        {"a": {"machine_facts": {"unreachable": True, "msg": "no route to host"}}, "b": {}}, ["a", "b"], []
    )

    assert [(node["features"], node["failure"]) for node in nodes.values()] == [({}, "no route to host"), ({}, "")]
