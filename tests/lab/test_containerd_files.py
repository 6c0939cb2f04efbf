"""What container_runtime writes, as the lab's containerd reads it with `config dump`: known failures B6 and B7.

No containerd is started.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from roles.container_runtime.filter_plugins import container_runtime_containerd as containerd
from scripts import command
from scripts.lab import programs
from tests.roles.containerd_files import BINARY, CRI_V2, CRI_V3, KUBEADM_V2, KUBEADM_V3

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab")]

PASSWORDS = f"""
[plugins."{CRI_V2}".registry.configs."registry.example".auth]
  username = "puller"
  password = "secret"
"""


VERSION = programs.module_version("containerd", "github.com/containerd/containerd/v2").removeprefix("v")


def dump(main: Path) -> dict[str, Any]:
    """All that containerd makes of its files."""
    program = programs.program("containerd", "containerd")
    return tomllib.loads(command.run([program, "--config", main, "config", "dump"], cwd=main.parent, env=os.environ))


def planned(folder: Path, main: str) -> Path:
    """Write a main file, and what the role makes of it."""
    path, own = folder / "config.toml", folder / "conf.d/zz-rankzero.toml"
    own.parent.mkdir()
    path.write_text(main, encoding="utf-8")
    node = {"path": str(path), "drop_in": str(own), "files": [{"path": str(path), "text": main, "mode": "0600"}]}
    changes = containerd.plan(node, VERSION, {"handler": "nvidia", "binary": BINARY, "default": False, "cdi": False})
    assert changes["problems"] == []
    for name, text in changes["write"].items():
        Path(name).write_text(text, encoding="utf-8")
    return path


def cri(dumped: dict[str, Any]) -> dict[str, Any]:
    """The section of the CRI's runtimes, by whichever name the release has for it."""
    plugins = dumped["plugins"]
    found: dict[str, Any] = plugins.get(CRI_V3) or plugins[CRI_V2]
    return found


def test_the_handler_is_there_and_nothing_that_somebody_else_has_set_is_lost(tmp_path: Path) -> None:
    main = KUBEADM_V2 + PASSWORDS
    before_main = tmp_path / "before.toml"
    before_main.write_text(main, encoding="utf-8")
    before = dump(before_main)

    after = dump(planned(tmp_path, main))

    runtimes = cri(after)["containerd"]["runtimes"]
    nvidia = runtimes.pop("nvidia")
    assert nvidia["runtime_type"] == "io.containerd.runc.v2"
    assert nvidia["options"]["BinaryName"] == BINARY
    assert nvidia["options"]["SystemdCgroup"] is True
    assert nvidia["pod_annotations"] == ["io.example/*"]
    assert after["plugins"] == before["plugins"]


def test_a_main_file_of_containerd_2_is_read_with_the_drop_in(tmp_path: Path) -> None:
    after = dump(planned(tmp_path, KUBEADM_V3))

    assert cri(after)["containerd"]["runtimes"]["nvidia"]["options"]["BinaryName"] == BINARY
    assert after["plugins"]["io.containerd.cri.v1.images"]["registry"]["config_path"] == "/etc/containerd/certs.d"
