"""What is deployed for each kind of plugin, and what a node should then offer.

The behaviour of the real plugins that these tests hold was measured by hand; it covers known failures B11 and B12.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from roles.device_plugin.filter_plugins.device_plugin import brief, expected, label_plan, offered, program, values
from scripts.cache import REPO
from tests.roles.templating import load

GPU = "nvidia.com/gpu"
DGX = load(REPO / "tests/roles/samples/dgx-h100.yml")


def settings(**other: Any) -> dict[str, Any]:
    return {
        "kind": "nvidia",
        "image_registry": "",
        "runtime_class": "nvidia",
        "device_list_strategy": "envvar",
        "pass_device_specs": True,
        "driver_root": "/",
        "mig_strategy": "none",
        "time_slicing": 1,
        "split_count": 10,
        **other,
    }


def with_mig(profiles: dict[int, list[str]]) -> dict[str, Any]:
    """The DGX with MIG on for some cards, by their index."""
    cards = [
        {
            **gpu,
            "mig": gpu["index"] in profiles,
            "mig_devices": [
                {"profile": name, "uuid": f"MIG-{n}"} for n, name in enumerate(profiles.get(gpu["index"], []))
            ],
        }
        for gpu in DGX["smi"]["gpus"]
    ]
    return {**DGX, "smi": {**DGX["smi"], "gpus": cards}}


ALL = {index: ["3g.40gb", "3g.40gb"] for index in range(8)}


def test_nvidia_s_plugin_ends_itself_over_a_missing_driver_and_passes_the_device_files() -> None:
    assert values("nvidia", settings()) == {
        "failOnInitError": True,
        "compatWithCPUManager": True,
        "deviceListStrategy": "envvar",
        "migStrategy": "none",
        "runtimeClassName": "nvidia",
    }


def test_every_setting_has_its_place_in_nvidia_s_chart() -> None:
    rendered = values(
        "nvidia",
        settings(
            image_registry="mirror.example/gpu",
            runtime_class="",
            device_list_strategy="cdi-cri",
            pass_device_specs=False,
            driver_root="/run/nvidia/driver",
            mig_strategy="mixed",
            time_slicing=4,
        ),
    )

    config = yaml.safe_load(rendered.pop("config")["map"]["default"])
    assert rendered == {
        "failOnInitError": True,
        "compatWithCPUManager": False,
        "deviceListStrategy": "cdi-cri",
        "migStrategy": "mixed",
        "nvidiaDriverRoot": "/run/nvidia/driver",
        "image": {"repository": "mirror.example/gpu/nvidia/k8s-device-plugin"},
    }
    assert config == {
        "version": "v1",
        "sharing": {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": [{"name": GPU, "replicas": 4}]}},
    }


def test_hami_gets_its_node_selector_its_split_and_the_role_s_runtime_class() -> None:
    assert values("hami", settings(image_registry="mirror.example", split_count=4)) == {
        "schedulerName": "hami-scheduler",
        "global": {"imageRegistry": "mirror.example"},
        "devicePlugin": {
            "deviceSplitCount": 4,
            "passDeviceSpecsEnabled": True,
            "deviceListStrategy": "envvar",
            "migStrategy": "none",
            "nvidiaDriverRoot": "/",
            "nvidiaNodeSelector": {"gpu": "on"},
            "createRuntimeClass": False,
            "runtimeClassName": "nvidia",
        },
    }


@pytest.mark.parametrize(
    ("facts", "other", "resources"),
    [
        (DGX, {}, {GPU: 8}),
        (DGX, {"time_slicing": 4}, {GPU: 32}),
        (DGX, {"kind": "hami"}, {GPU: 80}),
        (DGX, {"kind": "hami", "split_count": 1}, {GPU: 8}),
        (DGX, {"mig_strategy": "single"}, {GPU: 8}),
        (with_mig(ALL), {"mig_strategy": "single"}, {GPU: 16}),
        (with_mig(ALL), {"mig_strategy": "single", "time_slicing": 2}, {GPU: 32}),
        (
            with_mig({0: ["1g.10gb", "1g.10gb+me"], 1: ["1g.10gb"]}),
            {"mig_strategy": "mixed"},
            {"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-1g.10gb.me": 1, GPU: 6},
        ),
        (with_mig(ALL), {"mig_strategy": "mixed"}, {"nvidia.com/mig-3g.40gb": 16}),
    ],
)
def test_cards_mig_time_slices_and_hami_s_split_come_to_one_number(
    facts: dict[str, Any], other: dict[str, Any], resources: dict[str, int]
) -> None:
    assert expected(facts, settings(**other)) == {"resources": resources, "problems": []}


def test_a_card_that_the_driver_has_lost_is_missed_and_not_forgotten() -> None:
    smi = {**DGX["smi"], "gpus": DGX["smi"]["gpus"][:7]}

    assert expected({**DGX, "smi": smi}, settings())["resources"] == {GPU: 8}


@pytest.mark.parametrize(
    ("facts", "strategy", "problem"),
    [
        (with_mig({0: []}), "mixed", "GPU 0 has MIG on and no MIG device"),
        (with_mig({0: ["1g.10gb"]}), "single", "7 GPUs have MIG off and 1 on"),
        (with_mig({**ALL, 3: ["1g.10gb"]}), "single", "the MIG devices are 1g.10gb, 3g.40gb"),
        ({**DGX, "smi": None}, "mixed", "nvidia-smi does not answer"),
        (with_mig({2: ["1g.10gb"]}), "none", "GPU 2 has MIG on, and is offered as a whole card"),
    ],
)
def test_mig_devices_that_the_plugin_would_end_over_are_a_problem(
    facts: dict[str, Any], strategy: str, problem: str
) -> None:
    (found,) = expected(facts, settings(mig_strategy=strategy))["problems"]

    assert found.startswith(problem)


def test_hami_would_hand_out_a_card_with_mig_as_a_whole_one() -> None:
    assert len(expected(with_mig(ALL), settings(kind="hami"))["problems"]) == 8


def test_only_labels_that_the_role_wrote_are_taken_away_again() -> None:
    live = {"nvidia.com/gpu.present": "true", "gpu": "on"}

    assert label_plan({}, live, ["gpu"]) == {"write": {}, "remove": ["gpu"], "clashes": []}
    assert label_plan({"gpu": "on"}, live, ["gpu"]) == {"write": {}, "remove": [], "clashes": []}
    assert label_plan({"gpu": "on"}, {}, []) == {"write": {"gpu": "on"}, "remove": [], "clashes": []}


def test_a_label_that_somebody_else_gave_another_value_is_left_and_named() -> None:
    assert label_plan({"gpu": "on"}, {"gpu": "off"}, []) == {"write": {}, "remove": [], "clashes": ["gpu"]}


def test_a_node_that_the_cluster_does_not_have_is_empty() -> None:
    assert brief([], "gone") == {}


def test_a_node_that_has_just_joined_offers_nothing_yet() -> None:
    joined = brief([{"metadata": {"name": "a"}, "status": {}}], "a")

    assert offered(joined, {GPU: 8}, "allocatable") == {GPU: 0}


def test_thousands_are_read_as_kubernetes_writes_them() -> None:
    assert offered({"status": {"capacity": {GPU: "2k"}}}, {GPU: 2000}, "capacity") == {GPU: 2000}


def test_a_program_that_is_not_there_is_the_empty_path() -> None:
    assert (program("no-such-helm"), program("sh")[-3:]) == ("", "/sh")
