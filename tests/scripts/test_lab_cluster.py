"""`make lab-down` and `make lab` touch what is the lab's, and only that."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rankzero.errors import ConfigError, RankzeroError
from scripts.cache import cache_dir
from scripts.lab import cluster, host, kernel, lock
from scripts.lab.podman import (
    container_labels,
    containers,
    killed,
    local_images,
    remove_containers,
    remove_images,
    remove_volumes,
)
from scripts.lab.settings import CONTROL, LABEL, LABEL_CACHE, LABEL_SPEC, NAME, REGISTRY
from scripts.stages import Stages
from tests.scripts.fake_programs import FakePrograms

FREEING_LOCK = "Error: freeing lock for volume: no such file or directory\n"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakePrograms]:
    """podman and buildah that answer as told, root's rights, and a lock and a kernel of the test's own."""
    fake = FakePrograms(tmp_path / "bin")
    fake.install("podman", "buildah")
    fake.answer("podman ps", (0, "[]"))
    monkeypatch.setenv("PATH", f"{fake.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(lock, "CLUSTER", tmp_path / "lock")
    monkeypatch.setattr(kernel, "PROC_SYS", tmp_path / "sys")
    host.podman_env.cache_clear()
    yield fake
    host.podman_env.cache_clear()


def listed(*containers: tuple[str, dict[str, str] | None]) -> str:
    """`podman ps --format json` for these names and labels."""
    return json.dumps(
        [{"Names": [name], "State": "running", "Pid": os.getpid(), "Labels": labels} for name, labels in containers]
    )


def own(cache: Path) -> dict[str, str]:
    return {LABEL: NAME, LABEL_SPEC: "0123456789ab", LABEL_CACHE: str(cache)}


def test_a_container_that_stands_on_the_node_image_is_not_the_labs(programs: FakePrograms, tmp_path: Path) -> None:
    programs.answer(
        "podman ps",
        (
            0,
            listed(
                (CONTROL.name, own(tmp_path / "cache")),
                ("rankzero-molecule-kubeadm", {LABEL: NAME}),
                ("made-from-a-committed-node", own(tmp_path / "cache")),
                (REGISTRY, {"of": "somebody else"}),
                ("no-labels", None),
            ),
        ),
    )
    assert list(containers()) == [CONTROL.name]


def test_a_container_whose_processes_were_killed_with_podmans_is_known(tmp_path: Path) -> None:
    present = json.loads(listed((CONTROL.name, own(tmp_path)), (REGISTRY, own(tmp_path))))
    present[1]["Pid"] = 2**22 + 1  # more than the kernel gives to any process
    assert killed({one["Names"][0]: one for one in present}) == [REGISTRY]


def test_down_removes_the_labs_own_and_nothing_else_even_on_a_full_disk(
    programs: FakePrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_dir("lab", "shared")
    programs.answer(
        "podman ps",
        (0, listed((CONTROL.name, own(tmp_path / "cache")), ("rankzero-molecule-k3s", {LABEL: NAME}))),
    )
    programs.answer("podman images", (0, f"localhost/{NAME}/node:1\nlocalhost/mine/from-node:1\n<none>:<none>\n"))
    programs.answer("buildah containers", (0, f"{NAME}-build-etcd\nmine-build\n"))
    full = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)

    cluster.down(Stages())

    removals = [call for call in programs.calls() if any(word in call.split() for word in ("rm", "rmi"))]
    assert removals == [
        f"podman rm --force --ignore --volumes --time 0 {CONTROL.name}",
        f"buildah rm {NAME}-build-etcd",
        f"podman rmi localhost/{NAME}/node:1",
    ]
    assert not (tmp_path / "cache" / "lab").exists()


@pytest.mark.usefixtures("programs")
def test_a_full_disk_keeps_the_cluster_from_being_built_and_not_from_being_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "disk_problems", lambda _: ["The disk is full."])
    assert "The disk is full." in host.machine_problems()
    assert host.removal_problems() == []


def test_what_keeps_the_cluster_from_being_removed_is_said(
    monkeypatch: pytest.MonkeyPatch, programs: FakePrograms
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RankzeroError, match=r"(?s)root.*podman was not found.*buildah was not found"):
        cluster.down(Stages())
    assert programs.calls() == []


@pytest.mark.parametrize("command", [cluster.up, cluster.down])
def test_the_cluster_of_another_cache_folder_is_neither_rebuilt_nor_removed(
    command: Callable[[Stages], None], programs: FakePrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "check_host", lambda: None)
    programs.answer("podman ps", (0, listed((CONTROL.name, own(tmp_path / "other")))))
    with pytest.raises(ConfigError, match="has a cluster already") as refusal:
        command(Stages(Console(file=io.StringIO())))
    assert f"make lab-down RANKZERO_CACHE={tmp_path / 'other'}" in refusal.value.hint
    assert [call.split()[1] for call in programs.calls()] == ["ps"]


def test_each_container_of_the_lab_says_which_cache_folder_it_mounts(programs: FakePrograms, tmp_path: Path) -> None:
    words = container_labels("spec")
    labels = dict(word.split("=", 1) for word in words if word != "--label")
    programs.answer("podman ps", (0, listed((CONTROL.name, labels))))
    cluster.refuse_another_caches_cluster(containers())
    assert labels[LABEL_CACHE] == str(tmp_path / "cache")


def test_only_images_below_the_labs_name_are_its_own(programs: FakePrograms) -> None:
    programs.answer("podman images", (0, f"localhost/{NAME}/node:1\nlocalhost/{NAME}-mine/node:1\ndebian:12\n"))
    assert local_images() == [f"localhost/{NAME}/node:1"]


def test_an_image_that_a_container_stands_on_stays_and_the_others_go(programs: FakePrograms) -> None:
    programs.answer("podman rmi used", (2, "Error: image used by 0123: image is in use by a container\n"))
    assert remove_images("used", "unused") == ["used"]
    assert programs.calls() == ["podman rmi used", "podman rmi unused"]


def test_an_image_that_cannot_be_removed_for_another_reason_is_an_error(programs: FakePrograms) -> None:
    programs.answer("podman rmi", (125, "Error: no space left on device\n"))
    with pytest.raises(RankzeroError, match="no space left"):
        remove_images("any")


def test_a_volume_that_is_gone_although_podman_failed_is_removed(programs: FakePrograms) -> None:
    programs.answer("podman volume ls", (0, "mine\nnode\n"), (0, "mine\n"))
    programs.answer("podman volume rm", (125, FREEING_LOCK))
    remove_volumes("node")
    assert "podman volume rm node" in programs.calls()


def test_a_volume_that_is_still_there_after_a_failure_is_an_error(programs: FakePrograms) -> None:
    programs.answer("podman volume ls", (0, "node\n"))
    programs.answer("podman volume rm", (2, "Error: volume node is being used by container 0123\n"))
    with pytest.raises(RankzeroError, match="being used"):
        remove_volumes("node")


def test_a_container_that_is_still_there_after_a_failure_is_an_error(programs: FakePrograms) -> None:
    programs.answer("podman rm", (125, FREEING_LOCK))
    programs.answer("podman ps", (0, ""))
    remove_containers("node")
    programs.answer("podman ps", (0, "node\n"))
    with pytest.raises(RankzeroError, match="freeing lock"):
        remove_containers("node")
