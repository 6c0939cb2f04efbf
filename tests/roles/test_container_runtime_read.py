"""The module that reads a node: from files as the kernel and the role write them, and as Ansible runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.container_runtime.module_utils.container_runtime import cri, files, gpus, services
from scripts import command
from scripts.cache import REPO

SHOWN = "Id=containerd.service\nMainPID=95\n\nId=kubelet.service\nMainPID=0\n"


def test_units_are_told_apart_by_their_blocks() -> None:
    assert services.parse_units(SHOWN)["kubelet"]["MainPID"] == "0"


def test_limits_are_those_of_the_services_that_run(tmp_path: Path) -> None:
    (tmp_path / "proc/95").mkdir(parents=True)
    (tmp_path / "proc/95/limits").write_text("Max open files 1 1 files\n", encoding="utf-8")

    running = services.read_running(services.parse_units(SHOWN), tmp_path)

    assert running == {"containerd": "Max open files 1 1 files\n"}


@pytest.mark.parametrize(
    ("unit", "down"),
    [
        ({"ActiveState": "active", "SubState": "running"}, False),
        ({"ActiveState": "active", "SubState": "running", "Job": "0"}, False),
        ({"ActiveState": "active", "SubState": "running", "Job": "77"}, True),
        ({"ActiveState": "activating", "SubState": "start", "Job": "77"}, True),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, True),
        ({"ActiveState": "failed", "SubState": "failed"}, True),
    ],
    ids=["runs", "no job", "about to stop", "start that lasts", "starts again and again", "failed"],
)
def test_a_service_runs_only_once_systemd_has_nothing_to_do_with_it(unit: dict[str, str], down: bool) -> None:
    assert (services.down({"k3s": unit, "other": {}}, ["k3s"]) != []) is down


def test_a_drop_in_names_its_service() -> None:
    assert services.service_of(Path("/etc/systemd/system/k3s-agent.service.d/90-limits.conf")) == "k3s-agent"


def test_one_call_reads_what_was_asked_for_and_what_record_and_drop_ins_add(tmp_path: Path) -> None:
    (tmp_path / "crio.service.d").mkdir()
    (tmp_path / "crio.service.d/90.conf").touch()
    record = {"services": ["kubelet"]}
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    # systemd is not there wherever tests run: a program of its name that answers with what it was asked for.
    systemctl = tmp_path / "systemctl"
    systemctl.write_text('#!/bin/sh\nfor word; do case $word in *.service) echo "Id=$word\nMainPID=0\n";; esac; done\n')
    systemctl.chmod(0o755)

    result = run_module(
        {
            "record": str(tmp_path / "record.json"),
            "units": str(tmp_path),
            "drop_in": "90.conf",
            "services": ["containerd"],
        },
        path=f"{tmp_path}:/usr/bin:/bin",
    )

    assert result["record"] == record
    assert result["drop_ins"] == {str(tmp_path / "crio.service.d/90.conf"): ""}
    assert list(result["units"]) == ["containerd", "crio", "kubelet"]
    assert result["nr_open"] >= 1024
    assert result["process_1"]["limits"].startswith("Limit")
    assert result["changed"] is False
    assert result["cri"]["answers"] is False
    assert result["config"]["path"] == "/etc/containerd/config.toml"


INFO = {
    "status": {"conditions": [{"type": "RuntimeReady", "status": True, "message": ""}]},
    "config": {
        "enableCDI": False,
        "containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": {"options": {"SystemdCgroup": True}}}},
    },
}


def test_the_cri_tells_its_runtimes_with_their_options() -> None:
    answer = cri.parse_info(0, json.dumps(INFO), "")

    assert answer == {
        "answers": True,
        "ready": True,
        "runtimes": {"runc": {"SystemdCgroup": True}},
        "default": "runc",
        "cdi": False,
        "problem": "",
        "base_specs": [],
    }


def test_the_cri_tells_the_files_that_it_lays_over_pods_and_these_their_limits() -> None:
    runtimes = {"runc": {"baseRuntimeSpec": "/etc/cri-base.json"}, "nvidia": {"baseRuntimeSpec": ""}}
    info = {"status": INFO["status"], "config": {"containerd": {"runtimes": runtimes}}}
    rlimits = [{"type": "RLIMIT_NOFILE", "soft": 65535, "hard": 65536}, {"type": "RLIMIT_CORE", "soft": 0, "hard": 0}]

    assert cri.parse_info(0, json.dumps(info), "")["base_specs"] == ["/etc/cri-base.json"]
    assert cri.parse_rlimits(json.dumps({"process": {"rlimits": rlimits}})) == {
        "nofile": {"soft": 65535, "hard": 65536}
    }
    assert [cri.parse_rlimits(text) for text in (None, "{", "[]", "{}")] == [{}, {}, {}, {}]


def test_a_cri_without_containerd_s_details_still_tells_its_handlers() -> None:
    info = {"status": INFO["status"], "runtimeHandlers": [{"features": {}}, {"name": "crun"}]}

    assert cri.parse_info(0, json.dumps(info), "")["runtimes"] == {"crun": {}}


@pytest.mark.parametrize(
    ("status", "output", "errors", "problem"),
    [
        (1, "", "rpc error: unknown service runtime.v1.RuntimeService\n", "unknown service"),
        (0, "not JSON", "", "not JSON"),
        (0, "[]", "", "[]"),
        (1, "", "", ""),
    ],
    ids=["disabled", "noise", "list", "silence"],
)
def test_a_cri_that_does_not_answer_says_why(status: int, output: str, errors: str, problem: str) -> None:
    """B9: the CRI plugin is disabled."""
    answer = cri.parse_info(status, output, errors)

    assert (answer["answers"], answer["ready"]) == (False, False)
    assert problem in answer["problem"]


def test_a_cri_that_is_not_ready_says_why() -> None:
    conditions = [{"type": "RuntimeReady", "status": False, "message": "no sandbox image"}]

    assert cri.parse_info(0, json.dumps({"status": {"conditions": conditions}}), "")["problem"] == "no sandbox image"


def test_files_are_read_in_containerd_s_order_with_relative_and_missing_imports(tmp_path: Path) -> None:
    for path, text in {
        "etc/containerd/config.toml": "#imports = ['/no']\nimports = ['conf.d/*.toml', \"/opt/a.toml\", '/opt/n']",
        "etc/containerd/conf.d/b.toml": "imports = ['../config.toml']",
        "etc/containerd/conf.d/a.toml": "imports = [\n '/opt/c.toml',\n]",
        "opt/a.toml": "",
        "opt/c.toml": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")

    found = files.config_files("/etc/containerd/config.toml", tmp_path)

    assert [Path(file["path"]).name for file in found] == ["config.toml", "a.toml", "b.toml", "a.toml", "c.toml"]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["containerd"], "/etc/containerd/config.toml"),
        (["containerd", "--config", "/opt/c.toml"], "/opt/c.toml"),
        (["containerd", "-l", "info", "-c", "/opt/c.toml"], "/opt/c.toml"),
        (["containerd", "--config=/opt/c.toml"], "/opt/c.toml"),
    ],
    ids=["default", "long", "short", "with ="],
)
def test_the_main_file_is_the_one_that_containerd_was_started_with(tmp_path: Path, words: list[str], path: str) -> None:
    (tmp_path / "proc/95").mkdir(parents=True)
    (tmp_path / "proc/95/cmdline").write_text("\0".join([*words, ""]), encoding="utf-8")

    assert files.config_path("95", tmp_path) == path
    assert files.config_path("0", tmp_path) == "/etc/containerd/config.toml"


def test_a_specification_tells_the_driver_that_it_was_made_for(tmp_path: Path) -> None:
    folder = tmp_path / "etc/cdi"
    folder.mkdir(parents=True)
    (folder / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n# /usr/lib/libcuda.so.580.95.05\n", encoding="utf-8"
    )
    (folder / "other.json").write_text('{"kind": "vendor.example/nic"}', encoding="utf-8")
    (folder / "plain.json").write_text('{"kind": "nvidia.com/gpu"}', encoding="utf-8")

    assert gpus.specifications(tmp_path) == [
        {"path": "/etc/cdi/nvidia.yaml", "driver": "580.95.05"},
        {"path": "/etc/cdi/plain.json", "driver": ""},
    ]


def test_containers_from_before_the_last_link_would_be_cut_off(tmp_path: Path) -> None:
    """B5: the rules of a container name devices by their links, as they were when it was made."""
    null = Path("/dev/null")
    (tmp_path / "dev/char").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/stat").write_text("cpu 1\nbtime 1000\n", encoding="utf-8")
    values = " ".join(["S", *["0"] * 18, str(50 * os.sysconf("SC_CLK_TCK")), "0"])
    (tmp_path / "proc/7/stat").write_text(f"7 (containerd-shim) {values}\n", encoding="utf-8")
    (tmp_path / "dev/nvidia0").symlink_to(null)
    link = tmp_path / "dev/char/1:3"

    unlinked = gpus.cut_off_by_reload(tmp_path, ["/dev/nvidia0"])
    link.symlink_to("../nvidia0")
    os.utime(link, (1049, 1049), follow_symlinks=False)
    before = gpus.cut_off_by_reload(tmp_path, ["/dev/nvidia0"])
    os.utime(link, (1051, 1051), follow_symlinks=False)
    after = gpus.cut_off_by_reload(tmp_path, ["/dev/nvidia0"])

    assert (unlinked, before, after) == (1, 0, 1)
    assert gpus.cut_off_by_reload(tmp_path, []) == 0


def test_only_device_files_that_nvidia_ctk_names_are_asked_for(tmp_path: Path) -> None:
    """The device files of an HGX H100 with GPUDirect Storage and MIG; links to a character device stand in for them."""
    named = ["nvidia0", "nvidia-caps/nvidia-cap1", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"]
    unnamed = [
        "nvidia-nvswitchctl",
        "nvidia-nvswitch0",
        "nvidia-nvlink",
        "nvidia-fs0",
        "nvidia-caps-imex-channels/channel0",
    ]
    for name in (*named, *unnamed):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).symlink_to("/dev/null")

    assert gpus.devices(tmp_path) == sorted(f"/dev/{name}" for name in named)


UTILS = os.pathsep.join(str(REPO / "roles" / role / "module_utils") for role in ("container_runtime", "machine"))


def run_module(arguments: dict[str, Any], path: str) -> dict[str, Any]:
    """Run the module through Ansible on this machine."""
    output = command.run(
        [
            *(Path(sys.executable).parent / "ansible", "localhost", "--connection", "local", "--one-line"),
            *("--playbook-dir", REPO / "roles/container_runtime", "--module-name", "container_runtime_read"),
            *("--args", json.dumps(arguments), "--extra-vars", f"ansible_python_interpreter={sys.executable}"),
        ],
        cwd=REPO,
        env={"PATH": path, "ANSIBLE_MODULE_UTILS": UTILS},
    )
    result: dict[str, Any] = json.loads(output.partition("=>")[2])
    return result
