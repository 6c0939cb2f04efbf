"""What cpu_manager writes on a node, what it takes for a difference, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from roles.cpu_manager.filter_plugins import cpu_manager
from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/cpu_manager"
DGX: dict[str, Any] = load(REPO / "tests/roles/samples/dgx-h100.yml")
FOLDER = "/etc/kubernetes/kubelet.conf.d"
FILE = "99-rankzero-cpu-manager.conf"
UNIT = "/etc/systemd/system/kubelet.service.d/90-rankzero-cpu-manager.conf"
KUBEADM = {"KUBELET_CONFIG_ARGS": "--config=/var/lib/kubelet/config.yaml"}


def read(**parts: Any) -> dict[str, Any]:
    """What the role reads from a kubeadm node that it has not touched."""
    untouched = {
        "active": True,
        "member": True,
        "folder": FOLDER,
        "has_folder_option": False,
        "options": {"config": "/var/lib/kubelet/config.yaml"},
        "environment": KUBEADM,
        "files": {f"{FOLDER}/{FILE}": None, UNIT: None},
        "health_url": "http://127.0.0.1:10248/healthz",
        "unwritable": [],
        "policies": {"cpu": "none", "memory": "None"},
        "record": {},
    }
    return untouched | parts


def on(expression: str, facts: dict[str, Any] = DGX, live: dict[str, Any] | None = None, **arguments: Any) -> Any:
    described = {
        "machine_facts": facts,
        "machine_kubeconfig": "/k",
        "ansible_search_path": [str(ROLE)],
        "__cpu_manager_read": live or read(),
    }
    return evaluate(ROLE, expression, described | {f"cpu_manager_{name}": value for name, value in arguments.items()})


def refusals(facts: dict[str, Any] = DGX, live: dict[str, Any] | None = None, **arguments: Any) -> list[str]:
    found: list[str] = on("__cpu_manager_refusals", facts, live, **arguments)
    return found


def kubelet(version: str) -> dict[str, Any]:
    return DGX | {"kubernetes": DGX["kubernetes"] | {"version": version}}


def asked(**parts: Any) -> dict[str, Any]:
    """What the role reads from a node on which it has done all with its defaults."""
    files = on("__cpu_manager_asked_files")
    record = on("__cpu_manager_record") | {"finished": True}
    return read(files=files, policies={"cpu": "static", "memory": "None"}, record=record, **parts)


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


K3S = DGX | {"kubernetes": {"distribution": "k3s", "service": "k3s-agent", "version": "v1.33.5+k3s1", "server": False}}


def test_k3s_reads_its_folder_without_being_told() -> None:
    live = read(folder="/var/lib/rancher/k3s/agent/etc/kubelet.conf.d", files={}, environment={})

    assert list(on("__cpu_manager_asked_files", K3S, live)) == [f"{live['folder']}/{FILE}"]
    assert refusals(K3S, live) == []


def test_an_older_k3s_which_reads_no_folder_is_refused() -> None:
    older = K3S | {"kubernetes": K3S["kubernetes"] | {"version": "v1.31.4+k3s1"}}
    found = refusals(older, read(files={}, environment={}))

    assert len(found) == 1
    assert "The kubelet of k3s 1.31.4+k3s1 reads no folder of drop-ins. Upgrade to 1.32" in found[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"reserved_per_numa": 0}, "does not start without reserved CPUs"),
        ({"reserved_cpus": "0-4095"}, "are not online here"),
        ({"policy_options": ["align-by-socket"]}, "names align-by-socket, which the kubelet"),
        ({"topology_options": ["max-allowable-numa-nodes"]}, "or the role sets itself"),
        ({"topology_policy": "restricted"}, "cpu_manager_topology_strict_ok to true"),
        ({"topology_policy": "single-numa-node", "topology_strict_ok": True}, "sit on the NUMA nodes 0, 1"),
        ({"memory_policy": "static", "memory_reserved_mib": 99999999}, "Reserve less"),
        ({"timeout": 1}, "Give at least 10"),
    ],
)
def test_arguments_that_cannot_be_followed_are_refused(arguments: dict[str, Any], words: str) -> None:
    found = refusals(**arguments)

    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("version", "arguments", "words"),
    [
        ("v1.32.1", {"policy_options": ["distribute-cpus-across-numa"]}, "distribute-cpus-across-numa (from 1.33 on)"),
        ("v1.31.9", {"oom_kill": "process"}, "has no such choice"),
        ("v1.29.3", {}, "reads no folder of drop-ins"),
    ],
)
def test_what_the_kubelet_is_too_old_for_is_refused(version: str, arguments: dict[str, Any], words: str) -> None:
    found = refusals(kubelet(version), **arguments)

    assert len(found) == 1
    assert words in found[0]


def test_many_numa_nodes_on_an_older_kubelet_are_refused() -> None:
    many = kubelet("v1.30.1") | {"numa": [{"node": node, "cpus": [node], "memory_mib": 1} for node in range(12)]}

    assert "takes at most 8" in " ".join(refusals(many))


def test_killing_the_whole_container_needs_cgroup_v2() -> None:
    assert "needs cgroup v2" in refusals(DGX | {"cgroup_version": 1}, oom_kill="container")[0]


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_drained() -> None:
    assert "/etc/kubernetes cannot be written to" in refusals(live=read(unwritable=["/etc/kubernetes"]))[0]
    assert refusals(live=asked(unwritable=["/etc/kubernetes"])) == []


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


def asking(config: dict[str, Any] | None = None, *, denied: bool = False, **arguments: Any) -> list[str]:
    """Refusals where the running kubelet was asked for its configuration."""
    answer = {"config": config or {}, "denied": denied, "ready": not denied, "why": "403 Forbidden"}
    found: list[str] = evaluate(
        ROLE,
        "__cpu_manager_refusals",
        {
            "machine_facts": DGX,
            "machine_kubeconfig": "/k",
            "ansible_search_path": [str(ROLE)],
            "__cpu_manager_read": read(),
            "__cpu_manager_live": answer,
            **{f"cpu_manager_{name}": value for name, value in arguments.items()},
        },
    )
    return found


def test_a_right_that_the_proof_needs_is_asked_for_before_the_drain() -> None:
    assert "the right to get nodes/proxy" in asking(denied=True)[0]


def test_reserved_cgroups_with_which_the_kubelet_would_not_start_are_refused() -> None:
    assert "takes no reserved CPUs by number" in asking({"systemReservedCgroup": "/system"})[0]
    assert asking({"systemReservedCgroup": ""}) == []


def test_memory_reserved_by_a_share_has_to_be_given_as_a_number() -> None:
    share = {"evictionHard": {"memory.available": "5%"}}

    assert "or a share of it" in asking(share, memory_policy="static")[0]
    assert asking(share, memory_policy="static", memory_reserved_mib=4096) == []


def test_a_kubelet_that_does_not_tell_its_health_is_refused() -> None:
    assert "healthzPort is 0" in refusals(live=read(health_url=""))[0]


def test_options_on_the_kubelet_s_command_line_that_would_win_are_refused() -> None:
    live = read(options={"cpu-manager-policy": "none", "v": "2"})

    assert "gets --cpu-manager-policy on its command line" in refusals(live=live)[0]
    assert refusals(live=live, policy="none") == []


def test_a_unit_that_is_not_kubeadm_s_is_refused_unless_it_names_a_folder_itself() -> None:
    assert "with --config-dir=" in refusals(live=read(environment={}))[0]
    assert refusals(live=read(environment={}, has_folder_option=True)) == []


NVIDIA, HAMI = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "docker.io/projecthami/hami:v2.10.0"


def plugin(image: str, environment: dict[str, str] | None = None, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """A DaemonSet with one container."""
    env = [{"name": name, "value": value} for name, value in (environment or {}).items()]
    container = {"image": image, "args": list(args), "env": env}
    return {
        "metadata": {"namespace": "gpu", "name": "plugin"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


@pytest.mark.parametrize(
    ("daemon_set", "refused"),
    [
        (plugin(NVIDIA), True),
        (plugin(NVIDIA, {"PASS_DEVICE_SPECS": "false"}), True),
        (plugin(NVIDIA, {"PASS_DEVICE_SPECS": "true"}), False),
        (plugin(NVIDIA, args=("--pass-device-specs",)), False),
        (plugin(NVIDIA, {"DEVICE_LIST_STRATEGY": "cdi-cri"}), False),
        (plugin(HAMI, {"PASS_DEVICE_SPECS": "false"}), True),
        (plugin(HAMI, {"PASS_DEVICE_SPECS": "true"}, ("--pass-device-specs=false",)), True),
        (plugin(HAMI, {"PASS_DEVICE_SPECS": "true"}), False),
        (plugin("registry.k8s.io/kube-proxy:v1.37.2"), False),
    ],
)
def test_a_device_plugin_that_would_lose_the_gpus_is_refused(daemon_set: dict[str, Any], refused: bool) -> None:
    """Known failure B 4."""
    assert cpu_manager.without_device_specs([daemon_set]) == (["gpu/plugin"] if refused else [])


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
