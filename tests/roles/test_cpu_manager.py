"""What cpu_manager writes on a node, what it takes for a difference, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from roles.cpu_manager.filter_plugins import cpu_manager
from scripts.cache import REPO
from tests.roles.cpu_manager_node import DGX, FILE, FOLDER, K3S, KUBEADM, UNIT, asked, on, read, refusals
from tests.roles.templating import evaluate


def test_the_defaults_are_fit_for_a_gpu_machine() -> None:
    assert refusals() == []


def test_the_defaults_pin_cpus_and_admit_every_pod() -> None:
    config = on("__cpu_manager_config")

    assert config == {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": config["reservedSystemCPUs"],
        "topologyManagerPolicy": "best-effort",
        "topologyManagerScope": "container",
    }
    assert config["reservedSystemCPUs"].startswith("0,")


def test_the_file_on_the_node_is_a_kubelet_configuration_that_shows_the_plan() -> None:
    text = on("__cpu_manager_text", policy_options=["full-pcpus-only"], oom_kill="process")

    assert "# NUMA node 1: " in text
    assert yaml.safe_load(text) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **on("__cpu_manager_config", policy_options=["full-pcpus-only"], oom_kill="process"),
    }
    assert yaml.safe_load(text)["singleProcessOOMKill"] is True
    assert yaml.safe_load(text)["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}


def test_a_node_on_which_all_is_done_is_as_asked() -> None:
    assert on("__cpu_manager_differences", live=asked()) == []
    assert on("__cpu_manager_report.status", live=asked()) == "ok"


def test_nothing_asked_for_is_nothing_to_do_on_an_untouched_node() -> None:
    assert on("__cpu_manager_differences", policy="none") == []
    assert set(on("__cpu_manager_asked_files", policy="none").values()) == {None}


def test_none_takes_away_what_static_wrote_wherever_that_was() -> None:
    earlier = asked()
    earlier["record"]["files"].append("/etc/kubernetes/elsewhere/99-rankzero-cpu-manager.conf")

    assert set(on("__cpu_manager_asked_files", live=earlier, policy="none").items()) == {
        ("/etc/kubernetes/elsewhere/99-rankzero-cpu-manager.conf", None),
        (f"{FOLDER}/{FILE}", None),
        (UNIT, None),
    }


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"files": {}}, "is not there"),
        ({"policies": {"cpu": "none", "memory": None}}, "cpu manager has the policy none, not static"),
        ({"policies": {"cpu": None, "memory": None}}, "cpu manager has the policy none, not static"),
        ({"active": False}, "does not run"),
    ],
)
def test_what_is_not_as_asked_is_told(parts: dict[str, Any], words: str) -> None:
    found = on("__cpu_manager_differences", live=asked() | parts)

    assert any(words in sentence for sentence in found)
    assert on("__cpu_manager_report.status", live=asked() | parts) == "waiting"


def test_other_cpus_online_than_when_the_policy_was_set_are_a_change_of_policy() -> None:
    """Known failure B 3."""
    live = asked()
    live["record"] = live["record"] | {"online": "0-3"}

    assert "CPUs 0-3 were online" in " ".join(on("__cpu_manager_differences", live=live))


def test_a_file_that_somebody_edited_is_told() -> None:
    live = asked()
    live["files"] = live["files"] | {f"{FOLDER}/{FILE}": "kind: KubeletConfiguration\n"}

    assert on("__cpu_manager_differences", live=live) == [f"{FOLDER}/{FILE} is not as asked for."]


def test_the_unit_s_own_arguments_are_kept_and_the_folder_is_added_once() -> None:
    first = cpu_manager.unit(KUBEADM, FOLDER)
    told = {"KUBELET_CONFIG_ARGS": f"--config=/var/lib/kubelet/config.yaml --config-dir={FOLDER}"}

    assert f'"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml --config-dir={FOLDER}"' in first
    assert cpu_manager.unit(told, FOLDER) == first


def test_a_kubelet_that_reads_a_folder_already_gets_its_file_there_and_no_change_of_its_unit() -> None:
    live = read(folder="/etc/kubelet.d", has_folder_option=True, files={})

    assert list(on("__cpu_manager_asked_files", live=live)) == [f"/etc/kubelet.d/{FILE}"]


def test_k3s_reads_its_folder_without_being_told() -> None:
    live = read(folder="/var/lib/rancher/k3s/agent/etc/kubelet.conf.d", files={}, environment={})

    assert list(on("__cpu_manager_asked_files", K3S, live)) == [f"{live['folder']}/{FILE}"]
    assert refusals(K3S, live) == []


def test_a_run_that_broke_off_is_finished_by_the_next() -> None:
    live = asked()
    live["record"] = live["record"] | {"finished": False}

    assert "broke off" in " ".join(on("__cpu_manager_differences", live=live))


def test_what_the_plan_notes_is_a_warning() -> None:
    found = on("__cpu_manager_report.findings", live=asked(), reserved_cpus="0")

    assert [(finding["severity"], finding["what"][:44]) for finding in found] == [
        ("warning", "cpu_manager_reserved_cpus takes only some th")
    ]


def test_none_leaves_a_static_policy_that_is_not_the_role_s_and_says_so() -> None:
    live = read(policies={"cpu": "static", "memory": "None"})

    assert on("__cpu_manager_report.status", live=live, policy="none") == "ok"
    assert "which the role leaves as it is" in on("__cpu_manager_report.findings", live=live, policy="none")[0]["what"]


@pytest.mark.parametrize(("active", "member", "has"), [(True, False, True), (False, True, True), (False, False, False)])
def test_a_node_on_its_way_into_a_cluster_is_passed_over_and_a_member_whose_kubelet_fails_is_not(
    active: bool, member: bool, has: bool
) -> None:
    assert on("__cpu_manager_has_kubelet", live=read(active=active, member=member)) is has
    assert on("__cpu_manager_has_kubelet", DGX | {"kubernetes": {"distribution": "none"}}) is False


def test_without_leave_the_role_waits_and_says_for_what() -> None:
    assert "cpu_manager_restart_ok=true and drain_ok=true" in on("__cpu_manager_waits_for")
    assert on("__cpu_manager_waits_for", live=read(member=False)).endswith("with cpu_manager_restart_ok=true.")
    assert on("__cpu_manager_waits_for", restart_ok="true") == ""


def test_the_memory_manager_s_state_goes_only_when_its_policy_is_concerned() -> None:
    state = "/var/lib/kubelet/memory_manager_state"

    assert state not in on("__cpu_manager_removed_states")
    assert state in on("__cpu_manager_removed_states", memory_policy="static")
    static = read(policies={"cpu": "static", "memory": "Static"})
    assert state in on("__cpu_manager_removed_states", live=static, policy="none")


def test_what_the_kubelet_says_is_compared_key_by_key_and_maps_may_hold_more() -> None:
    live = {"cpuManagerPolicy": "none", "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%"}}

    assert cpu_manager.mismatches({"evictionHard": {"memory.available": "100Mi"}}, live) == []
    assert cpu_manager.mismatches({"cpuManagerPolicy": "static"}, live) == [
        'The kubelet says cpuManagerPolicy is "none", not "static".'
    ]


def test_another_setting_that_the_restart_has_changed_is_told() -> None:
    before = {"maxPods": 250, "cpuManagerPolicy": "none"}

    assert cpu_manager.strayed({"cpuManagerPolicy": "static", "maxPods": 110}, before) == [
        "The kubelet's maxPods, none of the role's, was 250 before the restart and is now 110."
    ]
    assert cpu_manager.strayed({}, before) == cpu_manager.strayed(before, {}) == []


def test_the_label_about_the_cpu_manager_has_the_policy_that_this_role_reports() -> None:
    report = on("__cpu_manager_report", live=read(policies={"cpu": "static", "memory": "None"}))
    variables = {"inventory_hostname": "node", "hostvars": {"node": {"cpu_manager_report": report}}}

    assert evaluate(REPO / "roles/node_profile", "__node_profile_cpu_policy", variables) == "static"
