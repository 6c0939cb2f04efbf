"""The role device_plugin against a real kubelet, API and Helm: GPUs are offered, proved, lost, and taken back.

The chart and the plugin are stand-ins, and the GPUs are a mock of the PCI bus in the worker's container; registration,
Allocatable, RuntimeClass, events and labels are real. Known failures B11, B12 and B30.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankzero import contract
from scripts.cache import REPO
from scripts.lab import gpus, images, kube, programs
from scripts.lab.nodes import shared_dir
from scripts.lab.podman import podman
from scripts.lab.settings import SHARED_PATH, WORKERS
from tests.lab.plays import Played, play

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

NODE = WORKERS[0]
CHART = REPO / "tests/lab/device_plugin_chart"
SAMPLE = REPO / "tests/roles/samples/dgx-h100.yml"
GPUS = 8
PLUGINS = "/var/lib/kubelet/device-plugins"
BUS = "/sys/bus/pci/devices"
WITHIN = 150.0
"""Seconds that the kubelet may take to follow its plugin."""


@dataclass(frozen=True)
class Stage:
    """A worker with the PCI bus of a DGX, and a folder that it shares with this machine."""

    name: str

    @property
    def folder(self) -> Path:
        return shared_dir() / self.name

    def play(self, *points: str, options: tuple[str, ...] = (), **arguments: Any) -> Played:
        """Run entry points of the role on the worker."""
        given = {
            "device_plugin_chart": str(CHART),
            "device_plugin_namespace": self.name,
            "device_plugin_helm": str(programs.program("helm", "helm")),
            # The lab's containerd has no handler `nvidia`.
            "device_plugin_runtime_class": "",
            "device_plugin_timeout": int(WITHIN),
            "device_plugin_values": {
                "nodeSelector": {"kubernetes.io/hostname": NODE.name},
                "standIn": {
                    "image": images.toolbox_reference(),
                    "folder": f"{SHARED_PATH}/{self.name}",
                    "count": GPUS,
                },
            },
        }
        return play(self.folder, NODE, "device_plugin", *points, options=options, **{**given, **arguments})

    def state(self, options: tuple[str, ...] = (), **arguments: Any) -> tuple[str, list[str]]:
        """The role's status and what it has found."""
        played = self.play(options=options, **arguments)
        assert played.succeeded, played.output
        return played.report["status"], [finding["what"] for finding in played.report["findings"]]


@pytest.fixture(scope="module")
def stage(lab: None) -> Iterator[Stage]:  # noqa: ARG001
    """The worker as it is without a plugin, and afterwards as every other test wants it."""
    own = Stage(f"test-device-plugin-{uuid.uuid4().hex[:6]}")
    own.folder.mkdir(parents=True)
    try:
        mock_gpus(own)
        shutil.copy(programs.program("device-plugin", "device-plugin"), own.folder)
        (own.folder / "unhealthy").touch()
        kube.kubectl("label", "node", NODE.name, f"{gpus.PRESENT_LABEL}-")
        yield own
    finally:
        kube.kubectl("delete", "namespace", own.name, "--ignore-not-found", timeout=90)
        podman("exec", NODE.name, "sh", "-euc", f"! mountpoint -q {BUS} || umount {BUS}; rm -rf /run/{own.name}")
        forget_plugin()
        gpus.advertise()
        shutil.rmtree(own.folder)


def mock_gpus(stage: Stage) -> None:
    """MOCK: the PCI bus of a DGX in place of the worker's own."""
    (stage.folder / "facts.json").write_text(json.dumps(yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))))
    shutil.copy(REPO / "tests/roles/machine_tree.py", stage.folder)
    there = f"{SHARED_PATH}/{stage.name}"
    tree = f"/run/{stage.name}"
    podman("exec", NODE.name, "python3", f"{there}/machine_tree.py", f"{there}/facts.json", tree)
    podman("exec", NODE.name, "mount", "--bind", f"{tree}{BUS}", BUS)


def forget_plugin() -> None:
    """A kubelet that knows of a plugin undoes counts written by hand, until it starts without a trace of it."""
    script = f"systemctl stop kubelet; rm -f {PLUGINS}/nvidia-gpu.sock {PLUGINS}/kubelet_internal_checkpoint"
    podman("exec", NODE.name, "sh", "-euc", f"{script}; systemctl start kubelet")


def allocatable() -> int:
    return gpus.advertised()[NODE.name]


def wait_for(amount: int) -> None:
    deadline = time.monotonic() + WITHIN
    while allocatable() != amount:
        assert time.monotonic() < deadline, f"{NODE.name} offers {allocatable()} GPUs, not {amount}"
        time.sleep(0.5)


def label() -> str:
    node: dict[str, Any] = json.loads(kube.kubectl("get", "node", NODE.name, "--output", "json"))
    return str(node["metadata"]["labels"].get(gpus.PRESENT_LABEL, ""))


def environment(stage: Stage) -> dict[str, str]:
    """What the chart tells the plugin."""
    (daemon,) = json.loads(kube.kubectl("get", "daemonsets", "--namespace", stage.name, "--output", "json"))["items"]
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"]}


def test_in_check_mode_gpus_without_a_plugin_are_phantoms_and_nothing_is_deployed(stage: Stage) -> None:
    status, found = stage.state(("--check",), device_plugin_timeout=0)

    assert status == "failed"
    assert f"The kubelet offers {GPUS} {contract.GPU_RESOURCE}, but no plugin of it listens in {PLUGINS}." in found
    assert label() == ""
    assert not kube.kubectl("get", "namespace", stage.name, "--ignore-not-found")


def test_a_handler_that_the_runtime_does_not_have_is_named(stage: Stage) -> None:
    status, found = stage.state(device_plugin_runtime_class=stage.name, device_plugin_timeout=20)
    kube.kubectl("delete", "runtimeclass", stage.name)

    assert status == "failed"
    assert 'no runtime for "nvidia" is configured' in " ".join(found)


def test_gpus_are_offered_and_a_second_run_changes_nothing(stage: Stage) -> None:
    first = stage.state()
    again = stage.play()

    assert first == ("ok", [])
    assert allocatable() == GPUS
    assert label() == "true"
    assert environment(stage) == {"FAIL_ON_INIT_ERROR": "true", "PASS_DEVICE_SPECS": "true"}
    assert again.changed() == []
    assert again.report["resources"] == {contract.GPU_RESOURCE: GPUS}


def test_a_lost_card_is_found_though_the_plugin_is_well(stage: Stage) -> None:
    stage.state()
    (stage.folder / "unhealthy").write_text("GPU-3\n")
    try:
        wait_for(GPUS - 1)
        status, found = stage.state(device_plugin_timeout=0)
    finally:
        (stage.folder / "unhealthy").write_text("")
    wait_for(GPUS)

    assert (status, found) == ("failed", [f"1 of {GPUS} {contract.GPU_RESOURCE} are unhealthy."])


def test_less_than_the_hardware_comes_to_is_no_success(stage: Stage) -> None:
    status, found = stage.state(device_plugin_time_slicing=2, device_plugin_timeout=20)

    assert status == "failed"
    assert found == [f"The node offers {GPUS} {contract.GPU_RESOURCE}; its hardware comes to {2 * GPUS}."]


def test_a_missing_helm_is_refused_by_the_variable_s_name(stage: Stage) -> None:
    refused = stage.play(device_plugin_helm="no-such-helm")

    assert not refused.succeeded
    assert "device_plugin_helm is no-such-helm" in refused.output


def test_reset_takes_the_role_s_label_and_with_leave_the_release_and_its_runtime_class(stage: Stage) -> None:
    stage.state(device_plugin_runtime_class=stage.name, device_plugin_timeout=0)
    stage.play("reset", device_plugin_remove_ok=True, device_plugin_runtime_class=stage.name)

    assert label() == ""
    assert not kube.kubectl("get", "runtimeclass", stage.name, "--ignore-not-found", "--output", "name")
    assert not kube.kubectl("get", "daemonsets", "--namespace", stage.name, "--output", "name")
    wait_for(0)


def test_a_label_that_was_there_before_stays(stage: Stage) -> None:
    kube.kubectl("label", "node", NODE.name, f"{gpus.PRESENT_LABEL}=true")

    stage.play("reset")

    assert label() == "true"
