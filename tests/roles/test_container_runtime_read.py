"""The module that reads a node: from files as the kernel and the role write them, and as Ansible runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.container_runtime.library import container_runtime_read
from scripts import command
from scripts.cache import REPO

SHOWN = "Id=containerd.service\nMainPID=95\n\nId=kubelet.service\nMainPID=0\n"


def test_units_are_told_apart_by_their_blocks() -> None:
    assert container_runtime_read.parse_units(SHOWN)["kubelet"]["MainPID"] == "0"


def test_limits_are_those_of_the_services_that_run(tmp_path: Path) -> None:
    (tmp_path / "95").mkdir()
    (tmp_path / "95/limits").write_text("Max open files 1 1 files\n", encoding="utf-8")

    running = container_runtime_read.read_running(container_runtime_read.parse_units(SHOWN), tmp_path)

    assert running == {"containerd": "Max open files 1 1 files\n"}


def test_a_node_without_a_record_has_an_empty_one(tmp_path: Path) -> None:
    assert container_runtime_read.read_record(tmp_path / "record.json") == {}


def test_a_damaged_record_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"services": [', encoding="utf-8")

    with pytest.raises(ValueError, match=r"record\.json is not JSON .* Remove it"):
        container_runtime_read.read_record(tmp_path / "record.json")


def test_a_drop_in_names_its_service() -> None:
    assert (
        container_runtime_read.service_of(Path("/etc/systemd/system/k3s-agent.service.d/90-limits.conf")) == "k3s-agent"
    )


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
    assert result["check_mode"] is False
    assert result["process_1"]["limits"].startswith("Limit")
    assert result["changed"] is False


def run_module(arguments: dict[str, Any], path: str) -> dict[str, Any]:
    """Run the module through Ansible on this machine."""
    output = command.run(
        [
            *(Path(sys.executable).parent / "ansible", "localhost", "--connection", "local", "--one-line"),
            *("--module-path", REPO / "roles/container_runtime/library", "--module-name", "container_runtime_read"),
            *("--args", json.dumps(arguments), "--extra-vars", f"ansible_python_interpreter={sys.executable}"),
        ],
        cwd=REPO,
        env={"PATH": path},
    )
    result: dict[str, Any] = json.loads(output.partition("=>")[2])
    return result
