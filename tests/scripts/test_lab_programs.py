"""The pinned programs: what is built is named after what it is built from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rankzero.errors import RankzeroError
from scripts.lab import images, programs


def test_each_family_has_the_pinned_version_of_its_module() -> None:
    assert programs.kubernetes_version() == programs.module_version("kubernetes", "k8s.io/kubernetes")
    assert programs.module_version("helm", "helm.sh/helm/v4").startswith("v4.")


def test_a_module_that_is_not_required_is_named_with_its_file() -> None:
    with pytest.raises(RankzeroError, match=r"helm/go\.mod.*does not require example\.org/nothing"):
        programs.module_version("helm", "example.org/nothing")


def test_another_pin_is_kept_in_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(programs, "MODULES", tmp_path / "programs")
    shutil.copytree(Path(programs.__file__).parent / "programs", tmp_path / "programs")
    before = programs.folder("etcd")
    go_sum = tmp_path / "programs" / "etcd" / "go.sum"
    go_sum.write_text(go_sum.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert programs.folder("etcd") != before
    assert programs.missing() == programs.names()


def test_containerd_and_the_registry_agree_on_the_pause_image() -> None:
    config = Path(programs.__file__).parent / "node" / "rootfs" / "etc" / "containerd" / "config.toml"
    assert f'sandbox = "{images.MIRROR}/pause:{images.PAUSE_TAG}"' in config.read_text(encoding="utf-8")
