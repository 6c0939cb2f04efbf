"""The pinned programs: what is built is named after what it is built from."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from rankzero.errors import RankzeroError
from scripts.lab import images, programs


@pytest.mark.parametrize(
    "text",
    [
        "module x\n\nrequire helm.sh/helm/v4 v4.3.1\n",
        "module x\n\nrequire (\n\thelm.sh/helm/v4/extra v9.9.9\n\thelm.sh/helm/v4 v4.3.1 // indirect\n)\n",
        "module x\n\ntool helm.sh/helm/v4/cmd/helm\n\nrequire helm.sh/helm/v4 v4.3.1\n",
    ],
)
def test_the_version_is_the_one_that_go_mod_requires(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setattr(programs, "MODULES", tmp_path)
    (tmp_path / "helm").mkdir()
    (tmp_path / "helm" / "go.mod").write_text(text, encoding="utf-8")
    assert programs.module_version("helm", "helm.sh/helm/v4") == "v4.3.1"


def test_the_parts_of_kubernetes_have_the_version_of_the_whole() -> None:
    """Its own go.mod replaces them by folders, which a consumer of the module does not have."""
    text = (programs.MODULES / "kubernetes" / "go.mod").read_text(encoding="utf-8")
    replaced = re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => (\S+) (v\S+)$", text, re.MULTILINE)
    assert len(replaced) > 20
    part = "v0." + programs.kubernetes_version().removeprefix("v1.")
    assert {(path, target, version) for path, target, version in replaced if (path, part) != (target, version)} == set()


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


def test_an_operator_that_no_go_here_can_build_says_which_one_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Instead of the compiler's own sentence; the programs of the cluster can be built with less."""
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.26.6\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(programs, "ON_DEMAND", tmp_path / "operators")
    (tmp_path / "operators/kueue").mkdir(parents=True)
    (tmp_path / "operators/kueue/go.mod").write_text("module x\n\ngo 1.99.1\n")
    with pytest.raises(RankzeroError, match=r"kueue needs Go 1\.99\.1: .*/go is here"):
        programs.go_program("kueue")
    assert programs.go_program("helm") == go


def test_containerd_and_the_registry_agree_on_the_pause_image() -> None:
    config = Path(programs.__file__).parent / "node" / "rootfs" / "etc" / "containerd" / "config.toml"
    assert f'sandbox = "{images.MIRROR}/pause:{images.PAUSE_TAG}"' in config.read_text(encoding="utf-8")
