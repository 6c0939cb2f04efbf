"""Simulated nodes: what keeps everybody else off them, and what is said once nobody plays them any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankzero.errors import ClusterError
from scripts.lab import images, simulated, storage


def test_nothing_goes_to_a_simulated_node_that_does_not_say_so() -> None:
    (node,) = simulated.objects(1)["items"]
    (taint,) = node["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == (simulated.TOLERATION["key"], simulated.TOLERATION["effect"])
    assert "kubernetes.io/os" not in node["metadata"]["labels"]


def test_the_provisioner_s_pods_stay_off_them_though_they_tolerate_every_taint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: one went there, nobody made its folder, and the claim waited for ever."""
    monkeypatch.setattr(images, "toolbox_reference", lambda: "toolbox")
    monkeypatch.setattr(images, "provisioner_reference", lambda: "provisioner")
    (settings,) = (one for one in yaml.safe_load_all(storage.manifest()) if one["kind"] == "ConfigMap")
    helper = yaml.safe_load(settings["data"]["helperPod.yaml"])
    assert helper["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_who_waits_for_kubelets_that_have_ended_is_told_their_last_words(tmp_path: Path) -> None:
    log = tmp_path / "kwok.log"
    log.write_text("first\nno stages found\n", encoding="utf-8")
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        process.wait()
        with pytest.raises(ClusterError, match="KWOK has ended with status 3: first no stages found"):
            simulated.Kubelets(process, log).check()


def test_while_they_run_nothing_is_said(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        simulated.Kubelets(process, tmp_path / "none").check()
        process.communicate(b"\n")
