"""What a machine must have, said in one sentence each."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from scripts.lab import host
from scripts.lab.host import DiskPart


def part(gigabytes: float, path: Path, *, present: bool = False) -> DiskPart:
    return DiskPart("something", gigabytes, path, "put it elsewhere", lambda: present)


def test_a_full_disk_is_one_sentence_with_the_amount_that_is_missing(tmp_path: Path) -> None:
    (problem,) = host.disk_problems([part(1e6, tmp_path), part(1e6, tmp_path / "not" / "yet" / "there")])
    assert "2000000 GB are needed" in problem
    assert "something and something" in problem
    assert "put it elsewhere" in problem


def test_each_part_says_how_it_is_put_on_another_disk() -> None:
    environment, programs, cluster = host.disk_parts()
    assert "checkout" in environment.elsewhere
    assert "RANKZERO_CACHE" in programs.elsewhere
    assert str(host.CONTAINERS_ROOT) in cluster.elsewhere
    assert "RANKZERO_CACHE" not in environment.elsewhere + cluster.elsewhere


def test_what_is_already_there_needs_no_space(tmp_path: Path) -> None:
    assert host.disk_problems([part(1e6, tmp_path, present=True)]) == []


def test_nothing_to_put_anywhere_is_no_problem() -> None:
    assert host.disk_problems([]) == []


def test_a_fresh_machine_needs_forty_gigabytes() -> None:
    assert sum(part.gigabytes for part in host.disk_parts()) == 40


def test_every_problem_of_a_machine_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    problems = "\n".join(host.machine_problems())
    for word in ("Linux aarch64", "apt-get", "sudo"):
        assert word in problems


def test_a_missing_program_names_the_package_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert set(host.APT_PACKAGES) <= set(host.missing_apt_packages())


def test_podman_is_asked_for_no_limit_above_this_process_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path))
    host.podman_env.cache_clear()
    try:
        text = Path(host.podman_env()["CONTAINERS_CONF"]).read_text(encoding="utf-8")
    finally:
        host.podman_env.cache_clear()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = host.MAX_LIMIT if hard == resource.RLIM_INFINITY else min(hard, host.MAX_LIMIT)
    assert f'"nofile={wanted}:{wanted}"' in text
