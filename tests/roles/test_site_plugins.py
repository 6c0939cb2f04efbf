"""What the playbooks' plugins decide from variables, nodes and results."""

from __future__ import annotations

from typing import Any

import pytest

from playbooks.action_plugins import site_arguments
from playbooks.callback_plugins.site_summary import Node, failure, table
from playbooks.filter_plugins.site_batches import batches, namesakes

SPECS: dict[str, site_arguments.Spec] = {
    "host_tuning": {
        "host_tuning_file_max": {"type": "int", "default": 1},
        "container_runtime_restart_ok": {"type": "bool", "default": False},
        "host_tuning_extra_sysctls": {"type": "list", "elements": "dict", "options": {"key": {"type": "str"}}},
    },
    "drain": {"drain_ok": {"type": "bool", "default": False}},
    "cpu_manager": {"cpu_manager_topology_strict_ok": {"type": "bool", "default": False}},
}


def plan(leave: dict[str, str], serial: str = "1") -> dict[str, dict[str, Any]]:
    """What site_arguments tells of nodes that may be interrupted, by their failure domain."""
    return {node: {"leave": ["drain_ok"], "serial": serial, "domain": domain} for node, domain in leave.items()}


@pytest.mark.parametrize(
    ("serial", "sizes"),
    [("1", [1] * 10), ("4", [4, 4, 2]), ("99", [10]), ("20%", [2] * 5), ("1%", [1] * 10), ("100%", [10])],
)
def test_a_batch_has_as_many_nodes_as_asked_for(serial: str, sizes: list[int]) -> None:
    nodes = [f"node-{number}" for number in range(10)]

    assert [len(batch) for batch in batches(nodes, plan(dict.fromkeys(nodes, ""), serial))] == sizes


def test_a_node_that_is_left_out_makes_no_batch_of_its_own() -> None:
    assert batches(["b"], plan({"a": "", "b": ""})) == [["b"]]


def test_no_nodes_make_no_batch() -> None:
    assert batches([], {}) == []


@pytest.mark.parametrize(
    ("names", "hostnames", "clusters", "same"),
    [
        (["", ""], ["gpu-1", "GPU-1"], ["", ""], "a, b are all the node gpu-1."),
        (["gpu-1", "gpu-1"], ["", ""], ["", ""], "a, b are all the node gpu-1."),
        (["gpu-1", ""], ["x", "gpu-1"], ["", ""], "a, b are all the node gpu-1."),
        (["", "gpu-2"], ["gpu-1", "gpu-1"], ["", ""], ""),
        (["", ""], ["gpu-1", "gpu-1"], ["one", "two"], ""),
        (["", ""], ["", ""], ["", ""], ""),
    ],
)
def test_two_names_of_one_node_are_found(
    names: list[str], hostnames: list[str], clusters: list[str], same: str
) -> None:
    asked = {node: {"name": names[at], "cluster": clusters[at]} for at, node in enumerate("ab")}
    read = {
        node: {"machine_facts": {"hostname": hostnames[at]}} if hostnames[at] else {} for at, node in enumerate("ab")
    }

    found = " ".join(namesakes(["a", "b"], asked, read))

    assert found.startswith(same)
    assert bool(found) == bool(same)


def test_variables_of_others_are_left_alone() -> None:
    assert site_arguments.unknown(["ansible_host", "drained_on", "rack", "host_tuning_file_max"], SPECS) == []


PLUGIN: dict[str, site_arguments.Spec] = {
    "device_plugin": {
        "device_plugin_kind": {"type": "str", "default": "nvidia"},
        "device_plugin_time_slicing": {"type": "int", "default": 1},
        "device_plugin_timeout": {"type": "int", "default": 300},
    }
}


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({}, {}, ""),
        ({"device_plugin_time_slicing": 1}, {}, ""),
        ({"device_plugin_timeout": 5}, {}, ""),
        ({"device_plugin_time_slicing": 4}, {"device_plugin_kind": "none"}, ""),
        ({"device_plugin_time_slicing": 4}, {}, "device_plugin_time_slicing has several values, '1', '4'"),
        ({"machine_kubeconfig": "a"}, {"machine_kubeconfig": "a"}, ""),
        ({"machine_kubeconfig": "a"}, {"machine_kubeconfig": "b"}, "machine_kubeconfig has several values, a, b."),
        ({"machine_kubeconfig": "a"}, {}, "machine_kubeconfig has several values, nothing, a."),
    ],
)
def test_what_is_done_once_for_all_nodes_is_asked_for_once(
    one: dict[str, Any], other: dict[str, Any], words: str
) -> None:
    found = site_arguments.refused_differences({"node-1": one, "node-2": other}, PLUGIN)

    assert [words in sentence for sentence in found] == ([True] if words else [])


def test_a_plain_word_at_the_beginning_does_not_make_a_variable_the_role_s() -> None:
    specs = site_arguments.load_specs()

    assert site_arguments.unknown(["machine_type", "drain_hook", "rdma_vlan", "preflight_done"], specs) == []
    assert len(site_arguments.unknown(["machine_kubeconfg", "drain_timeouts", "rdma_hca", "preflight_gpu"], specs)) == 4


def test_every_permission_to_interrupt_a_node_is_found_in_any_spelling_of_yes_and_no_other() -> None:
    valid, sentences = site_arguments.checked({"drain_ok": "yes", "container_runtime_restart_ok": "false"}, SPECS)

    assert sentences == []
    assert site_arguments.permissions(valid) == ["drain_ok"]


def test_an_unknown_key_within_an_argument_is_refused() -> None:
    _, (sentence,) = site_arguments.checked({"host_tuning_extra_sysctls": [{"kee": "a"}]}, SPECS)

    assert "host_tuning_extra_sysctls.kee" in sentence
    assert "roles/host_tuning/README.md" in sentence


def test_one_mistake_in_a_group_s_variables_is_told_once() -> None:
    nodes = {f"gpu-{number}": ["rtt is wrong."] for number in range(1, 6)}

    assert site_arguments.gathered(nodes) == ["gpu-1, gpu-2, gpu-3 and 2 more: rtt is wrong."]


@pytest.mark.parametrize(
    ("serials", "words"),
    [(["0"], "'0'"), (["-1"], "'-1'"), (["a few"], "'a few'"), (["1", "2"], "several values, 1, 2"), (["2", "2"], "")],
)
def test_a_serial_is_a_number_or_a_share_and_one_for_all(serials: list[str], words: str) -> None:
    found = site_arguments.refused_serials(serials)

    assert len(found) == bool(words)
    assert words in " ".join(found)


@pytest.mark.parametrize(
    ("limit", "names"),
    [("", []), ("a,b", ["b"]), ("all:!c", ["c"]), ("gpu-*,~x.y,gpu[0:3],@file", []), ("&a", [])],
)
def test_only_plain_names_of_a_limit_are_looked_up(limit: str, names: list[str]) -> None:
    assert site_arguments.unmatched(limit, ["a", "training_nodes"]) == names


def test_every_role_s_arguments_are_known_and_the_playbooks_own() -> None:
    specs = site_arguments.load_specs()

    assert {"host_tuning", "node_profile", site_arguments.PLAYBOOKS} <= specs.keys()
    assert specs["container_runtime"]["container_runtime_restart_ok"]["description"] != "As in `main`."


def test_the_summary_says_of_each_node_what_happened_and_what_was_skipped() -> None:
    nodes = {
        "gpu-1": Node(begun=True, reports={"rdma": {"status": "skipped", "why": "no RDMA device"}}),
        "gpu-10": Node(begun=True, reports={"cpu_manager": {"status": "waiting", "why": "drain_ok is false."}}),
        "gpu-2": Node(failure="Write the file: no"),
        "gpu-3": Node(),
    }

    assert table(nodes) == [
        "gpu-1   done         skipped: rdma (no RDMA device)",
        "gpu-10  waiting      cpu_manager: drain_ok is false.",
        "gpu-2   failed       Write the file: no",
        "gpu-3   not begun    because of gpu-2",
    ]


def test_the_summary_says_what_to_do_about_what_waits_and_says_nothing_twice() -> None:
    limits = {"severity": "error", "what": "kubelet lacks limits.", "fix": "Drain the node."}
    cordoned = {"severity": "warning", "what": "The node is cordoned.", "fix": "Run kubectl uncordon."}
    runtime = {"status": "waiting", "why": "kubelet lacks limits.", "findings": [limits]}
    no_label = {"status": "waiting", "why": "no label while container_runtime: kubelet lacks limits.", "findings": []}
    own = {**no_label, "why": "no label while The node is cordoned.", "findings": [cordoned]}
    nodes = {
        "gpu-1": Node(begun=True, reports={"container_runtime": runtime, "node_profile": no_label}),
        "gpu-2": Node(begun=True, reports={"container_runtime": runtime, "node_profile": own}),
        "gpu-3": Node(begun=True, reports={"node_profile": own}),
    }

    assert table(nodes) == [
        "gpu-1  waiting      container_runtime: kubelet lacks limits. Fix: Drain the node.",
        "gpu-2  waiting      container_runtime: kubelet lacks limits. Fix: Drain the node."
        " node_profile: The node is cordoned. Fix: Run kubectl uncordon.",
        "gpu-3  waiting      node_profile: no label while The node is cordoned. Fix: Run kubectl uncordon.",
    ]


def test_a_run_that_changes_nothing_calls_no_node_failed_that_is_only_not_as_asked() -> None:
    bare = Node(begun=True, reports={"host_tuning": {"status": "failed", "why": "somaxconn is 128."}})

    assert table({"gpu-1": bare}, checking=True) == ["gpu-1  not yet      host_tuning: somaxconn is 128."]


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("Missing sudo password", "--ask-become-pass"),
        ("Module result deserialization failed: /bin/sh: 1: sudo: not found", "install sudo"),
        ("deploy is not in the sudoers file.", "an account that may run sudo"),
        ("[Errno 30] Read-only file system: '/etc/sysctl.d'", "mount the file system for writing"),
    ],
)
def test_a_refusal_of_the_node_comes_with_its_fix(message: str, advice: str) -> None:
    assert advice in failure("Read the node", message)


def test_a_failure_names_the_file_that_the_module_tells_apart() -> None:
    told = failure("Remove the file", "Unlinking failed.", "/etc/sysctl.d/99-a.conf")

    assert told.startswith("Remove the file: Unlinking failed (/etc/sysctl.d/99-a.conf). Fix: mount the file system")
    assert failure("Write", "/a is full", "/a") == "Write: /a is full"
