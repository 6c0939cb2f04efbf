"""What the modules of nvidia_driver read from a node, from the texts that its programs print."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.machine import programs

from roles.nvidia_driver.library import nvidia_driver_candidates, nvidia_driver_read
from tests.roles.machine_tree import put


def test_installed_packages_are_those_that_dpkg_calls_so_with_their_holds() -> None:
    output = (
        "libcuda1\t580.95.05-1\thold\tinstalled\n"
        "nvidia-modprobe\t580.95.05-1\tinstall\tinstalled\n"
        "nvidia-smi\t575.57.08-1\tdeinstall\tconfig-files\n"
        "nvidia-kernel-dkms\t\tunknown\tnot-installed\n"
    )

    assert nvidia_driver_read.parse_dpkg(output) == {
        "libcuda1": {"version": "580.95.05-1", "held": True},
        "nvidia-modprobe": {"version": "580.95.05-1", "held": False},
    }


def test_rpms_are_held_where_versionlock_names_them() -> None:
    locks = "# Added lock on Sun Nov 29 20:00:00 2026\nnvidia-driver-cuda-3:580.95.05-1.el9.*\n"

    packages = nvidia_driver_read.parse_rpm(
        "nvidia-driver-cuda\t580.95.05-1.el9\nnvidia-driver\t580.95.05-1.el9\n", locks
    )

    assert {name: package["held"] for name, package in packages.items()} == {
        "nvidia-driver-cuda": True,
        "nvidia-driver": False,
    }


def test_a_service_that_systemd_does_not_know_is_left_out() -> None:
    show = (
        "Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=nvidia-fabricmanager.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n"
    )

    assert nvidia_driver_read.parse_services(show) == {"nvidia-persistenced": {"active": True, "enabled": True}}


def test_a_unit_that_has_nothing_to_enable_counts_as_started_at_boot() -> None:
    show = "Id=nvidia-persistenced.service\nLoadState=loaded\nActiveState=inactive\nUnitFileState=static\n"

    assert nvidia_driver_read.parse_services(show)["nvidia-persistenced"]["enabled"]


def test_an_initramfs_that_was_made_before_a_file_is_older_and_the_rescue_image_does_not_count(tmp_path: Path) -> None:
    settings = tmp_path / "nouveau.conf"
    for name, age in {"initrd.img-old": 100, "initramfs-new.img": 300, "initramfs-0-rescue-1.img": 100}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))

    assert nvidia_driver_read.older_initramfs(settings, tmp_path) == []
    settings.touch()
    os.utime(settings, (200, 200))
    assert nvidia_driver_read.older_initramfs(settings, tmp_path) == ["initrd.img-old"]


def process(root: Path, pid: int, program: str, *opened: str) -> None:
    """A process in a /proc of the test's own."""
    descriptors = root / str(pid) / "fd"
    descriptors.mkdir(parents=True)
    (root / str(pid) / "comm").write_text(f"{program}\n", encoding="utf-8")
    for number, target in enumerate(opened):
        (descriptors / str(number)).symlink_to(target)


def test_who_computes_is_told_from_who_watches_and_from_who_only_asks_the_driver(tmp_path: Path) -> None:
    process(tmp_path, 7, "python", "/dev/null", "/dev/nvidia0", "/dev/nvidiactl")
    process(tmp_path, 8, "worker", "/dev/nvidia-uvm")
    (tmp_path / "8" / "cgroup").write_text("0::/kubepods.slice/kubepods-burstable.slice/x.scope\n", encoding="utf-8")
    process(tmp_path, 9, "nvidia-persiste", "/dev/nvidia0")
    process(tmp_path, 10, "curious", "/dev/nvidiactl")
    process(tmp_path, 11, "bash", "/dev/pts/0")

    assert nvidia_driver_read.gpu_users(["nvidia-persiste"], tmp_path) == [
        {"pid": 7, "program": "python", "pod": False},
        {"pid": 8, "program": "worker", "pod": True},
    ]


def test_a_nvidia_smi_that_does_not_come_back_is_left_behind_and_asked_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ntrap '' TERM\ncase $1 in *persistence*) echo Enabled;; *) while :; do sleep 1; done;; esac\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setattr(programs, "PATH", f"{tmp_path}:{programs.PATH}")
    questions = ["fabric.state", "persistence_mode"]

    assert nvidia_driver_read.ask_gpus(questions, tmp_path, limit=1) == dict(
        zip(questions, [[], ["Enabled"]], strict=True)
    )

    ticks = os.sysconf("SC_CLK_TCK")
    put(tmp_path / "proc/uptime", "1000.55 3000.20\n")
    put(tmp_path / "proc/33/comm", "nvidia-smi\n")
    put(tmp_path / "proc/33/stat", f"33 (nvidia-smi) D 1 {'0 ' * 17}{400 * ticks} 4096 1\n")
    assert nvidia_driver_read.ask_gpus(questions, tmp_path, limit=1) == {what: [] for what in questions}


def test_each_version_that_apt_knows_is_listed_once() -> None:
    output = (
        " libcuda1 | 580.95.05-1 | file:/srv/mirror ./ Packages\n"
        " libcuda1 | 580.95.05-1 | https://mirror.invalid ./ Packages\n"
        " libcuda1 | 575.57.08-1 | file:/srv/mirror ./ Packages\n"
        "nvidia-smi | 535.247.01-1~deb12u1 | https://mirror.invalid bookworm/non-free amd64 Packages\n"
    )

    assert nvidia_driver_candidates.parse_madison(output) == {
        "libcuda1": ["580.95.05-1", "575.57.08-1"],
        "nvidia-smi": ["535.247.01-1~deb12u1"],
    }


def test_versions_that_dnf_knows_are_read_from_its_query() -> None:
    assert nvidia_driver_candidates.parse_repoquery("nvidia-driver-cuda\t580.95.05-1.el9\n\nnonsense\n") == {
        "nvidia-driver-cuda": ["580.95.05-1.el9"]
    }


def test_a_key_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    key, error = nvidia_driver_candidates.read_key(f"file://{tmp_path}/absent.pub")

    assert key == ""
    assert error.startswith(f"the key file://{tmp_path}/absent.pub cannot be read")


class Runner:
    """What the module needs of AnsibleModule to run a program."""

    def run_command(self, words: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr


def test_a_mirror_that_trickles_does_not_hold_the_node_for_ever() -> None:
    assert nvidia_driver_candidates.run(Runner(), ["sleep", "60"], limit=1)[2] == "E: sleep took longer than 1 s."
    assert nvidia_driver_candidates.run(Runner(), ["echo", "580"], limit=1) == (0, "580\n", "")
