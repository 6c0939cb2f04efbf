"""Huge pages of host_tuning: on every NUMA node with CPUs, now and at boot, and back to what was there before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.host_tuning.filter_plugins.host_tuning import hugepages, sysctl_plan, sysctl_record, sysctl_values
from roles.host_tuning.library import host_tuning_read, host_tuning_write
from tests.roles.host_tuning_node import KERNEL, node, on

FACTS = node()["machine_facts"]


def pool(numa: int, root: Path | str = "") -> str:
    return f"{root}/sys/devices/system/node/node{numa}/hugepages/hugepages-2048kB/nr_hugepages"


def test_each_numa_node_with_cpus_gets_its_pages_and_a_size_that_is_not_asked_for_is_left_alone() -> None:
    asked = hugepages(FACTS, {2048: 512, 1048576: 0})

    assert {setting["key"]: setting["at_least"] for setting in asked} == {pool(0): 512, pool(1): 512}


def test_pages_are_reserved_by_the_running_kernel_read_back_and_given_back(tmp_path: Path) -> None:
    """On files in place of /sys: the real one is shared by everything that runs on this machine."""
    keys = [pool(numa, tmp_path) for numa in (0, 1)]
    for key, before in zip(keys, ("0", "1024"), strict=True):
        Path(key).parent.mkdir(parents=True)
        Path(key).write_text(f"{before}\n", encoding="utf-8")
    settings = [{"key": key, "at_least": 512, "reach": "host", "reason": "of the test"} for key in keys]

    plan = sysctl_plan(settings, host_tuning_read.read_sysctls(keys), {})
    host_tuning_write.write(sysctl_values(plan))
    record = sysctl_record(plan)
    reserved = host_tuning_read.read_sysctls(keys)
    host_tuning_write.write(sysctl_values(sysctl_plan([], reserved, record)))

    assert list(reserved.values()) == ["512", "1024"]  # raised, never lowered
    assert list(host_tuning_read.read_sysctls(keys).values()) == ["0", "1024"]


def asked(expression: str, live: int = 0, **arguments: int) -> Any:
    pages = {pool(0): str(live), pool(1): str(live)}
    return on(expression, node(sysctls={**KERNEL, **pages}), **{"hugepages_2mi": 512, **arguments})


def test_pages_are_reserved_again_at_boot_by_a_file_of_their_own() -> None:
    text = asked("__host_tuning_texts.tmpfiles")

    assert [line for line in text.splitlines() if line.startswith("w ")] == [
        f"w {pool(numa)} - - - - 512" for numa in (0, 1)
    ]
    assert "/sys/" not in asked("__host_tuning_texts.sysctl")
    assert (
        asked("__host_tuning_texts.tmpfiles", live=512) == asked("__host_tuning_texts.tmpfiles", hugepages_2mi=0) == ""
    )


def test_a_node_without_its_pages_is_not_as_asked() -> None:
    report = asked("__host_tuning_report")

    assert report["status"] == "failed"
    assert f"{pool(0)} is '0', not '512'." in report["why"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hugepages_2mi": -1}, "host_tuning_hugepages_2mi is -1"),
        ({"hugepages_1gi": 1}, "does not have (1048576 KiB). It has 2048"),
        ({"hugepages_2mi": 16384}, "come to 65536 MiB, and the node has 65536 MiB"),
    ],
)
def test_pages_that_cannot_be_are_refused(arguments: dict[str, int], words: str) -> None:
    (refusal,) = asked("__host_tuning_refusals", **arguments)

    assert words in refusal
