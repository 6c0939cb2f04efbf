"""Single parts of what the role machine reads: programs that hang or fail, odd files, forms of output."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from roles.machine.module_utils.machine import (
    cluster,
    driver,
    facts,
    files,
    infiniband,
    network,
    pci,
    processors,
    programs,
    smi,
    system,
)
from tests.roles.machine_tree import link, put

# --- Programs -------------------------------------------------------------------------------------------


def test_programs_run_beside_each_other_and_one_that_hangs_is_left_behind(tmp_path: Path) -> None:
    # As nvidia-smi does on a GPU that fell off the bus; this one also closes its ears to signals.
    hanging = tmp_path / "hanging"
    put(hanging, "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 10; done\n")
    hanging.chmod(0o755)
    begin = time.monotonic()

    answers = programs.run({"slow": [str(hanging)], "quick": ["echo", "yes"]}, limit=1)

    assert time.monotonic() - begin < 60
    assert answers["quick"] == programs.Answer(0, "yes\n", "")
    assert answers["slow"].status is None
    assert answers["slow"].problem.endswith("did not answer within 1 s")


def test_a_program_that_is_not_there_and_one_that_fails_say_so() -> None:
    answers = programs.run({"gone": ["no-such-program"], "bad": ["sh", "-c", "echo why >&2; exit 3"]}, limit=5)

    assert answers["gone"].problem == "no-such-program is not installed"
    assert (answers["bad"].status, answers["bad"].problem) == (
        3,
        "`sh -c echo why >&2; exit 3` ended with status 3: why",
    )


def put_process(root: Path, pid: int, name: str, state: str, started: int) -> None:
    """A process as /proc shows it on a machine that is up for 1000 s."""
    ticks = started * os.sysconf("SC_CLK_TCK")
    put(root / "proc/uptime", "1000.55 3000.20\n")
    put(root / f"proc/{pid}/comm", f"{name}\n")
    put(root / f"proc/{pid}/stat", f"{pid} ({name}) {state} 1 {'0 ' * 17}{ticks} 4096 1\n")


def test_a_program_that_hangs_in_the_kernel_is_not_joined_by_another(tmp_path: Path) -> None:
    put_process(tmp_path, 30, "nvidia-smi", "S", started=10)
    put_process(tmp_path, 31, "nvidia-smi", "D", started=999)
    put_process(tmp_path, 32, "kworker/u8:1", "D", started=10)
    assert programs.hanging(tmp_path, "nvidia-smi", limit=20) == ""

    put_process(tmp_path, 33, "nvidia-smi", "D", started=400)
    said = "nvidia-smi (process 33) has not come back from the kernel for 601 s"
    assert programs.hanging(tmp_path, "nvidia-smi", limit=20) == said
    assert facts.ask(tmp_path, 20)["smi_gpus"].problem == said


def test_a_machine_without_processes_has_none_that_hangs(tmp_path: Path) -> None:
    assert programs.hanging(tmp_path, "nvidia-smi", limit=20) == ""


@pytest.mark.parametrize(("answers", "asked"), [(True, 4), (False, 1)])
def test_nvidia_smi_is_asked_more_only_once_it_has_answered(
    answers: bool, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "nvidia-smi", f"#!/bin/sh\necho asked >> {tmp_path}/log\nexit {0 if answers else 9}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(programs, "PATH", f"{tmp_path}:{programs.PATH}")

    facts.ask(tmp_path, 20)

    assert (tmp_path / "log").read_text(encoding="utf-8").count("asked") == asked


def test_a_file_that_is_no_program_is_a_problem_and_no_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    put(broken, "\x7fELF")
    broken.chmod(0o755)

    assert "does not start" in programs.run({"it": [str(broken)]}, limit=5)["it"].problem


# --- CPUs -----------------------------------------------------------------------------------------------


def test_cpus_of_this_machine_are_those_that_lscpu_tells() -> None:
    told = subprocess.run(["lscpu", "--parse=CPU,CORE,SOCKET,NODE"], check=True, capture_output=True, text=True).stdout
    rows = [[int(cell or 0) for cell in line.split(",")] for line in told.splitlines() if not line.startswith("#")]

    read = processors.cpus(Path("/"), processors.numa(Path("/")))

    assert [[cpu["cpu"], cpu["core"], cpu["socket"], cpu["node"]] for cpu in read["cpus"]] == rows


def test_a_kernel_without_numa_has_one_node_with_all_of_it(tmp_path: Path) -> None:
    put(tmp_path / "sys/devices/system/cpu/online", "0-3\n")
    put(tmp_path / "proc/meminfo", "MemTotal:        2048 kB\n")

    assert processors.numa(tmp_path) == [{"node": 0, "cpus": [0, 1, 2, 3], "memory_mib": 2}]


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-3,8", [0, 1, 2, 3, 8]), ("", []), ("\n", []), ("5", [5]), ("0-0", [0]), ("x", [])]
)
def test_lists_of_numbers_are_read_as_the_kernel_writes_them(text: str, numbers: list[int]) -> None:
    assert files.number_list(text) == numbers


# --- GPUs and driver ------------------------------------------------------------------------------------


def test_only_nvidia_s_display_controllers_are_gpus(tmp_path: Path) -> None:
    for address, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:01:00.1", "0x10de", "0x040300"),  # its sound
        ("0000:02:00.0", "0x1002", "0x030000"),
        ("0000:03:00.0", "0x10de", "0x068000"),
    ):
        put(tmp_path / f"sys/bus/pci/devices/{address}/vendor", vendor)
        put(tmp_path / f"sys/bus/pci/devices/{address}/class", kind)
        put(tmp_path / f"sys/bus/pci/devices/{address}/device", "0x22a3")

    found = pci.nvidia(tmp_path)

    assert [gpu["address"] for gpu in found["gpus"]] == ["0000:01:00.0"]
    assert found["gpus"][0]["driver"] is None
    assert found["nvswitches"] == [{"address": "0000:03:00.0", "device": "22A3"}]


def test_removed_packages_do_not_count_and_rpm_s_listing_reads_alike() -> None:
    listing = "ii |nvidia-driver-580|580.95.05-1\nrc |nvidia-driver-535|535.1\nhi |nvidia-open-580|580.95.05-1\nnoise\n"

    assert driver.parse_packages(listing) == {
        "nvidia-driver-580": "580.95.05-1",
        "nvidia-open-580": "580.95.05-1",
    }


@pytest.mark.parametrize(
    ("version", "plain"),
    [
        *[
            ("580.95.05-0ubuntu0.24.04.2", "580.95.05"),
            ("3:575.57.08-1.el9", "575.57.08"),
            ("550.163.01-1", "550.163.01"),
        ],
        *[("1.18.0-1", None), ("", None)],
    ],
)
def test_a_package_s_version_is_the_driver_s_without_epoch_and_revision(version: str, plain: str | None) -> None:
    assert driver.plain_version(version) == plain


def test_a_module_that_is_built_in_is_not_loaded(tmp_path: Path) -> None:
    put(tmp_path / "sys/module/nouveau/parameters/modeset", "-1\n")
    put(tmp_path / "sys/module/nvidia/initstate", "live\n")

    assert driver.loaded_modules(tmp_path) == ["nvidia"]


def test_dkms_tells_what_is_added_built_and_installed(tmp_path: Path) -> None:
    source = tmp_path / "var/lib/dkms/nvidia"
    (source / "580.1.1").mkdir(parents=True)
    for kernel in ("6.1", "6.2"):
        (source / "570.1.1" / kernel / "x86_64/module").mkdir(parents=True)
    link(source / "kernel-6.2-x86_64", Path("570.1.1/6.2/x86_64"))

    assert driver.dkms(tmp_path) == [
        "nvidia/570.1.1, 6.1, x86_64: built",
        "nvidia/570.1.1, 6.2, x86_64: installed",
        "nvidia/580.1.1: added",
    ]


def test_mig_devices_belong_to_their_gpu() -> None:
    listing = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-a)\n"
        "  MIG 1c.3g.40gb  Device  1: (UUID: MIG-b)\n"
    )

    assert smi.mig_devices(listing) == {
        1: [{"profile": "3g.40gb", "uuid": "MIG-a"}, {"profile": "1c.3g.40gb", "uuid": "MIG-b"}]
    }


@pytest.mark.parametrize(
    ("bus_id", "address"), [("00000000:17:00.0", "0000:17:00.0"), ("00010008:01:00.0", "00010008:01:00.0")]
)
def test_addresses_are_written_as_the_kernel_does(bus_id: str, address: str) -> None:
    assert smi.pci_address(bus_id) == address


# --- System ---------------------------------------------------------------------------------------------


def test_kernels_are_ordered_by_their_numbers_and_leftover_folders_do_not_count(tmp_path: Path) -> None:
    for release in ("6.8.0-9-generic", "6.8.0-10-generic", "5.15.0-100-generic"):
        put(tmp_path / f"boot/vmlinuz-{release}", "")
        (tmp_path / "lib/modules" / release).mkdir(parents=True)
    (tmp_path / "lib/modules/6.9.0-1-generic/updates").mkdir(parents=True)

    found = system.kernel(tmp_path, "6.8.0-9-generic", "x86_64")

    assert found["installed"] == ["6.8.0-10-generic", "6.8.0-9-generic", "5.15.0-100-generic"]


def test_firmware_that_hides_its_variables_leaves_secure_boot_unknown(tmp_path: Path) -> None:
    assert system.secure_boot(tmp_path) is False
    (tmp_path / "sys/firmware/efi").mkdir(parents=True)

    assert system.secure_boot(tmp_path) is None


def test_the_clock_s_state_can_be_asked_without_rights() -> None:
    assert system.clock_synchronized() in (True, False)


# --- Network --------------------------------------------------------------------------------------------


def test_the_default_route_with_the_lowest_metric_counts_and_ipv6_s_only_without_ipv4_s(tmp_path: Path) -> None:
    heading = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    row = "{} 00000000 0102A8C0 0003 0 0 {} 00000000 0 0 0\n"
    nowhere = "0" * 32
    put(tmp_path / "proc/net/ipv6_route", f"{nowhere} 00 {nowhere} 00 {nowhere} 00000400 1 0 00450003 eth6\n")

    assert network.default_interface(tmp_path) == "eth6"
    put(tmp_path / "proc/net/route", heading + row.format("slow", 200) + row.format("fast", 100))
    assert network.default_interface(tmp_path) == "fast"


def test_output_of_ip_that_is_no_json_costs_the_addresses_only(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/net/eth0/ifindex", "2\n")
    put(tmp_path / "sys/class/net/bonding_masters", "bond0\n")

    nics = network.nics(tmp_path, 'Object "-details" is unknown', [])

    assert [(nic["name"], nic["kind"], nic["ipv4"]) for nic in nics] == [("eth0", "virtual", [])]


def test_speeds_that_are_unknown_are_null(tmp_path: Path) -> None:
    for name, speed in (("down", "-1"), ("odd", "4294967295"), ("good", "400000")):
        put(tmp_path / f"sys/class/net/{name}/ifindex", "1")
        put(tmp_path / f"sys/class/net/{name}/speed", speed)

    assert [nic["speed_mbit"] for nic in network.nics(tmp_path, "", [])] == [None, 400000, None]


def test_unused_gids_are_left_out(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    put(port / "gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n")
    put(port / "gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n")

    (device,) = infiniband.devices(tmp_path)

    assert [gid["index"] for gid in device["ports"][0]["gids"]] == [0]


# --- Cluster --------------------------------------------------------------------------------------------


def test_drop_ins_of_the_running_kubelet_speak_last(tmp_path: Path) -> None:
    put(tmp_path / "proc/7/cmdline", "/usr/bin/kubelet\0--config\0/etc/k/config.yaml\0--config-dir=/etc/k/d\0")
    put(tmp_path / "etc/k/config.yaml", "failCgroupV1: true\n")
    put(tmp_path / "etc/k/d/20.conf", "apiVersion: v1\nfailCgroupV1: true\n")
    put(tmp_path / "etc/k/d/90.conf", '{"apiVersion": "v1", "failCgroupV1": false}\n')
    put(tmp_path / "etc/k/d/95.conf", "apiVersion: v1\n# failCgroupV1: true\n")
    put(tmp_path / "etc/k/d/99.yaml", "failCgroupV1: true\n")
    units = cluster.parse_units("Id=kubelet.service\nLoadState=loaded\nActiveState=active\nMainPID=7\n")

    assert cluster.kubernetes(tmp_path, units, {})["fail_cgroup_v1"] is False


@pytest.mark.parametrize(
    ("running", "distribution", "service"),
    [
        *[("k3s", "k3s", "k3s"), ("k3s-agent", "k3s", "k3s-agent"), ("rke2-agent", "rke2", "rke2-agent")],
        *[("kubelet", "kubeadm", "kubelet"), ("docker", "none", "")],
    ],
)
def test_the_service_that_runs_tells_the_distribution(
    running: str, distribution: str, service: str, tmp_path: Path
) -> None:
    units = cluster.parse_units(f"Id={running}.service\nLoadState=loaded\nActiveState=active\nMainPID=1\n")

    found = cluster.kubernetes(tmp_path, units, {})

    assert (found["distribution"], found["service"]) == (distribution, service)


def test_a_masked_unit_is_not_there() -> None:
    units = cluster.parse_units("Id=nvidia-persistenced.service\nLoadState=masked\nActiveState=inactive\nMainPID=0\n")

    assert cluster.state(units["nvidia-persistenced"]) == "absent"


@pytest.mark.parametrize(
    ("who", "file", "text", "folder"),
    [
        (
            "containerd",
            "etc/containerd/config.toml",
            "version = 3\nroot = '/data/c'\n[plugins.x]\nroot = '/no'",
            "/data/c",
        ),
        ("containerd", "etc/containerd/config.toml", "[plugins.x]\nroot = '/no'\n", "/var/lib/containerd"),
        ("", "etc/crio/crio.conf", "", "/var/lib/containerd"),
        ("crio", "etc/crio/crio.conf", '[crio]\n# root = "/no"\nrunroot = "/no"\n', "/var/lib/containers/storage"),
        ("crio", "etc/crio/crio.conf.d/10.conf", '[crio]\nroot = "/data/o"\n', "/data/o"),
        ("crio", "etc/containers/storage.conf", '[storage]\ngraphroot = "/data/g"\n', "/data/g"),
        ("k3s", "etc/rancher/k3s/config.yaml", "server: https://x\ndata-dir: /data/k\n", "/data/k/agent/containerd"),
        ("rke2", "etc/rancher/rke2/config.yaml", "# data-dir: /no\n", "/var/lib/rancher/rke2/agent/containerd"),
    ],
)
def test_images_are_where_the_runtime_s_own_configuration_puts_them(
    who: str, file: str, text: str, folder: str, tmp_path: Path
) -> None:
    put(tmp_path / file, text)

    assert cluster.image_folder(tmp_path, who) == folder


def test_a_folder_of_images_that_is_not_there_yet_is_on_the_file_system_above_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    root, images = system.disks(tmp_path, "/data/not/yet")

    assert (images["path"], images["total_mib"]) == ("/data/not/yet", root["total_mib"])
