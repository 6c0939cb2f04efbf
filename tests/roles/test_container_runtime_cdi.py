"""What containerd's files say of CDI, and what would keep it from starting."""

from __future__ import annotations

from typing import Any

import pytest

from roles.container_runtime.filter_plugins import container_runtime_containerd as containerd
from tests.roles.containerd_files import CRI_V2, CRI_V3, KUBEADM_V2, KUBEADM_V3, MAIN, OWN, config, own, plan


def test_cdi_is_switched_on_where_it_is_not_on_by_itself() -> None:
    def section(main: str, version: str) -> dict[str, Any]:
        changes = plan(config(main), version, handler="", cdi=True)
        return own(changes)["plugins"] if OWN in changes["write"] else {}

    assert section(KUBEADM_V3, "2.1.0") == {}
    assert section(f"{KUBEADM_V3}[plugins.'{CRI_V3}']\nenable_cdi = false\n", "2.1.0") == {CRI_V3: {"enable_cdi": True}}
    assert section(KUBEADM_V2, "1.7.29")[CRI_V2]["enable_cdi"] is True


@pytest.mark.parametrize(
    ("node", "version", "words"),
    [
        (config("version = 3\n[plugins"), "2.2.1", f"{MAIN} is not TOML"),
        (config(KUBEADM_V3, broken="version ="), "2.2.1", "conf.d/broken.toml is not TOML"),
        (
            config(KUBEADM_V2, new="version = 3\n"),
            "2.2.1",
            "configuration version 3 and /etc/containerd/config.toml only 2",
        ),
        (config("version = 9\n"), "2.2.1", "configuration version 9, and the role knows 2, 3, 4"),
        (config("[plugins.cri]\nx = 1\n"), "1.7.29", "says no version"),
        (config('disabled_plugins = ["cri", "zfs"]'), "1.7.29", "says no version"),
        (config(KUBEADM_V3.replace("runc.options", "runc")), None, "does not tell its version"),
        (
            config(f"version = 3\n[plugins.'{CRI_V3}'.containerd]\ndefault_runtime_name = 'nope'\n"),
            "2.2.1",
            "the default runtime is nope, and containerd's files define only nvidia, runc",
        ),
        (config('version = 3\n"imports" = []\n'), "2.2.1", "in which the role cannot change imports"),
    ],
    ids=["main", "drop-in", "versions", "unknown", "v1", "v1 disabled", "no answer", "default", "quoted"],
)
def test_what_would_keep_containerd_from_starting_is_said_and_nothing_is_written(
    node: dict[str, Any], version: str, words: str
) -> None:
    changes = plan(node, version)

    assert words in " ".join(changes["problems"])
    assert (changes["write"], changes["remove"]) == ({}, [])


@pytest.mark.parametrize(("version", "read"), [("2.3.0", False), ("2.3.1", False), ("2.4.0", True)])
def test_files_of_two_versions_are_read_together_from_containerd_2_4_on(version: str, read: bool) -> None:
    """B6: the first patches of 2.3 refuse to start with them."""
    assert (plan(config(KUBEADM_V2, new="version = 3\n"), version)["problems"] == []) is read


def test_a_file_that_is_read_later_and_takes_the_default_back_is_named() -> None:
    later = f"version = 3\n[plugins.'{CRI_V3}'.containerd]\ndefault_runtime_name = 'runc'\n"
    node = config(f'imports = ["conf.d/*.toml"]\n{KUBEADM_V3}', zzz=later)

    assert "read after /etc/containerd/conf.d/zz-rankzero.toml" in plan(node, default=True)["problems"][0]
    assert plan(node)["problems"] == []


def test_a_folder_that_is_imported_after_the_role_s_is_read_later() -> None:
    node = config(f'imports = ["/etc/containerd/conf.d/*.toml", "/etc/containerd/later.d/*.toml"]\n{KUBEADM_V3}')
    later = f"version = 3\n[plugins.'{CRI_V3}'.containerd]\ndefault_runtime_name = 'runc'\n"
    node["files"].append({"path": "/etc/containerd/later.d/a.toml", "text": later, "mode": "0644"})

    assert "read after /etc/containerd/conf.d/zz-rankzero.toml" in plan(node, default=True)["problems"][0]


def test_a_containerd_that_does_not_answer_is_no_concern_where_nothing_is_asked_of_it() -> None:
    node = config("version = 3\n")

    assert containerd.plan(node, None, {"handler": "", "binary": "", "default": False, "cdi": False})["problems"] == []
    assert containerd.plan(node, None, {"handler": "", "binary": "", "default": False, "cdi": True})["problems"] != []
