"""What the reports of the other roles come to: the hash in the label, and whether there is a label at all."""

from __future__ import annotations

from typing import Any

from roles.node_profile.filter_plugins.node_profile import brief, obstacles, profile_hash, reports

ROLES = ["host_tuning", "rdma", "cpu_manager"]


def report(status: str = "ok", why: str = "", **asked: Any) -> dict[str, Any]:
    return {"status": status, "why": why, "findings": [], "asked": asked}


def test_only_roles_that_ran_have_a_report_in_the_order_of_the_playbook() -> None:
    variables = {"rdma_report": report("skipped"), "host_tuning_report": report(), "other_report": report("failed")}

    assert list(reports(variables, ROLES)) == ["host_tuning", "rdma"]


def test_nodes_that_were_asked_for_the_same_have_the_same_hash_whatever_they_are() -> None:
    small = {"host_tuning": report(somaxconn=4096), "rdma": report("skipped", "no RDMA device")}
    large = {"host_tuning": {**report(somaxconn=4096), "cpus": 256}, "rdma": report("skipped")}

    assert profile_hash(small) == profile_hash(large)


def test_another_value_or_another_role_gives_another_hash() -> None:
    asked = {"host_tuning": report(somaxconn=4096)}

    others = [{"host_tuning": report(somaxconn=8192)}, {**asked, "rdma": report(required=True)}]

    assert len({profile_hash(found) for found in [asked, *others]}) == 3


def test_the_order_of_roles_and_arguments_does_not_change_the_hash() -> None:
    one = {"host_tuning": report(a=1, b=2), "rdma": report(c=3)}
    other = {"rdma": report(c=3), "host_tuning": report(b=2, a=1)}

    assert profile_hash(one) == profile_hash(other)


def test_a_role_that_does_not_apply_is_no_obstacle() -> None:
    assert (
        obstacles({"host_tuning": report(), "rdma": report("skipped", "no RDMA device")}, ["host_tuning", "rdma"]) == []
    )


def test_each_role_that_waits_or_failed_is_an_obstacle_in_its_own_words() -> None:
    found = {"host_tuning": report("waiting", "kubelet has to be restarted"), "rdma": report("failed")}

    assert obstacles(found, ["host_tuning", "rdma"]) == ["host_tuning: kubelet has to be restarted", "rdma: failed"]


def test_each_role_that_has_not_run_is_an_obstacle() -> None:
    assert obstacles({"host_tuning": report()}, ROLES) == [
        "rdma has not run on the node",
        "cpu_manager has not run on the node",
    ]


def node(name: str, ready: str, **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready, "message": "no CNI"}]
    return {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec, "status": {"conditions": conditions}}


def test_of_a_node_object_it_is_known_whether_it_may_have_pods() -> None:
    nodes = [node("gpu-1", "True"), node("gpu-2", "Unknown", unschedulable=True)]
    fine = {"labels": {"a": "b"}, "annotations": {}, "cordoned": False, "unready": ""}

    assert brief(nodes, "gpu-1") == fine
    assert brief(nodes, "gpu-2") == fine | {"cordoned": True, "unready": "no CNI"}
    assert brief(nodes, "gpu-3") == {}


def test_a_node_whose_kubelet_has_said_nothing_yet_is_not_ready() -> None:
    assert brief([node("gpu-1", "True") | {"status": {}}], "gpu-1")["unready"] == "its kubelet has not reported"
