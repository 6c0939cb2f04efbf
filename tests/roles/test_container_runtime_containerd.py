"""What becomes of containerd's configuration files, on files as packages, guides and cloud images have them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from roles.container_runtime.filter_plugins import container_runtime_containerd as containerd
from tests.roles.containerd_files import (
    BINARY,
    CRI_V2,
    CRI_V3,
    KUBEADM_V2,
    KUBEADM_V3,
    MAIN,
    OWN,
    after,
    config,
    own,
    plan,
)

DOCKER_PACKAGE = """#   Copyright 2018-2022 Docker Inc.

disabled_plugins = ["cri"]

#root = "/var/lib/containerd"
#[grpc]
#  address = "/run/containerd/containerd.sock"
"""


CRUN_V3 = f"""version = 3
[plugins.'{CRI_V3}'.containerd]
  default_runtime_name = 'crun'
[plugins.'{CRI_V3}'.containerd.runtimes.crun]
  runtime_type = 'io.containerd.runc.v2'
  options = {{ BinaryName = '/usr/bin/crun', SystemdCgroup = true }}
"""


def handler_of(changes: dict[str, Any], plugin: str = CRI_V3) -> dict[str, Any]:
    found: dict[str, Any] = own(changes)["plugins"][plugin]["containerd"]["runtimes"]["nvidia"]
    return found


@pytest.mark.parametrize(
    ("main", "version"),
    [
        (None, "1.7.29"),
        (None, "2.2.1"),
        ("", "1.7.29"),
        (DOCKER_PACKAGE, "1.7.29"),
        (DOCKER_PACKAGE, "2.4.2"),
        (KUBEADM_V2, "1.7.29"),
        (KUBEADM_V2, "2.0.5"),
        (KUBEADM_V2, "2.4.2"),
        (KUBEADM_V3, "2.1.0"),
        (CRUN_V3, "2.4.2"),
        (KUBEADM_V3.replace("version = 3", "version = 4"), "2.4.2"),
        ('imports = [\n  "/x/*.toml", # ]\n  \'/y]["#.toml\',\n]\nversion = 3', "2.2.1"),
    ],
    ids=lambda value: "no file" if value is None else value.splitlines()[0][:20] if value else "empty",
)
@pytest.mark.parametrize("default", [False, True], ids=["by class", "default"])
def test_a_second_run_finds_nothing_to_do_and_files_have_one_version(
    main: str | None, version: str, default: bool
) -> None:
    node = config(main)
    changes = plan(node, version, default=default)
    done = after(node, changes)

    assert changes["problems"] == []
    assert "nvidia" in changes["runtimes"]
    assert changes["default"] == ("nvidia" if default else "crun" if main == CRUN_V3 else "runc")
    assert plan(done, version, default=default) | {"write": {}, "remove": []} == plan(done, version, default=default)
    # B6: a drop-in of a higher version than the main file's keeps containerd from starting.
    assert {tomllib.loads(file["text"])["version"] for file in done["files"]} == {own(changes)["version"]}


def test_the_handler_has_what_the_usual_runtime_has_and_a_type() -> None:
    """B7: without runtime_type every sandbox fails. B8: SystemdCgroup is not lost."""
    assert handler_of(plan(config(KUBEADM_V3))) == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"SystemdCgroup": True, "BinaryName": BINARY},
    }
    assert handler_of(plan(config(CRUN_V3)))["options"] == {"BinaryName": BINARY, "SystemdCgroup": True}


def test_the_handler_is_not_made_from_a_default_that_runs_virtual_machines() -> None:
    kata = KUBEADM_V2.replace('default_runtime_name = "runc"', 'default_runtime_name = "kata"')

    assert handler_of(plan(config(kata), "2.1.0"), CRI_V2) == {
        "runtime_type": "io.containerd.runc.v2",
        "pod_annotations": ["io.example/*"],
        "options": {"SystemdCgroup": True, "BinaryName": BINARY},
    }


def test_a_drop_in_adds_only_the_handler_where_containerd_merges_sections() -> None:
    section = own(plan(config(KUBEADM_V2), "2.1.0"))["plugins"][CRI_V2]

    assert section.keys() == {"containerd"}
    assert section["containerd"].keys() == {"runtimes"}
    assert section["containerd"]["runtimes"].keys() == {"nvidia"}


def test_a_drop_in_repeats_the_whole_section_where_containerd_replaces_it() -> None:
    """B8: with containerd 1.7 mirrors, snapshotter and the pause image would be gone otherwise."""
    changes = plan(config(KUBEADM_V2), "1.7.29")
    before = tomllib.loads(KUBEADM_V2)["plugins"][CRI_V2]
    section = own(changes)["plugins"][CRI_V2]

    assert section["containerd"]["runtimes"].pop("nvidia")["pod_annotations"] == ["io.example/*"]
    assert section == before
    assert "has no effect until the role has run again" in changes["write"][OWN]


def test_the_whole_section_is_that_of_the_last_file_that_has_it() -> None:
    other = f'version = 2\n[plugins."{CRI_V2}".containerd.runtimes.gvisor]\nruntime_type = "io.containerd.runsc.v1"\n'
    changes = plan(config(KUBEADM_V2.replace("imports = []", 'imports = ["conf.d/*.toml"]'), gvisor=other), "1.7.29")

    assert own(changes)["plugins"][CRI_V2]["containerd"]["runtimes"].keys() == {"gvisor", "nvidia"}
    assert MAIN not in changes["write"]


def test_only_the_import_is_added_to_the_main_file() -> None:
    changes = plan(config(KUBEADM_V2))

    assert changes["write"][MAIN] == KUBEADM_V2.replace(
        "imports = []", 'imports = ["/etc/containerd/conf.d/zz-rankzero*.toml"]'
    )


def test_other_imports_stay_and_dormant_files_of_others_are_not_woken() -> None:
    changes = plan(config(KUBEADM_V3.replace("version = 3", "version = 3 # ours\nimports = ['/opt/x.toml'] # why")))

    assert changes["write"][MAIN].splitlines()[:2] == [
        "version = 3 # ours",
        'imports = ["/opt/x.toml", "/etc/containerd/conf.d/zz-rankzero*.toml"] # why',
    ]


@pytest.mark.parametrize("pattern", ["/etc/containerd/conf.d/*.toml", "conf.d/*.toml", "./conf.d/zz*"])
def test_a_main_file_that_imports_the_folder_is_left_alone(pattern: str) -> None:
    changes = plan(config(f'imports = ["{pattern}"]\n{KUBEADM_V3}'))

    assert changes["write"].keys() == {OWN}


@pytest.mark.parametrize("pattern", ["/etc/containerd/*.toml", "/etc/*/zz-rankzero.toml", "/etc/*"])
def test_a_pattern_does_not_import_what_is_a_folder_deeper(pattern: str) -> None:
    changes = plan(config(f'imports = ["{pattern}"]\n{KUBEADM_V3}'))

    assert tomllib.loads(changes["write"][MAIN])["imports"] == [pattern, "/etc/containerd/conf.d/zz-rankzero*.toml"]


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ('disabled_plugins = ["cri"]', []),
        ("disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.snapshotter.v1.zfs']", ["zfs"]),
        ('disabled_plugins = [\n  "io.containerd.snapshotter.v1.zfs",\n  "io.containerd.cri.v1.runtime",\n]', ["zfs"]),
    ],
    ids=["alone", "with another", "on several lines"],
)
def test_only_the_cri_is_enabled_again(before: str, kept: list[str]) -> None:
    """B9: the kubelet reads `unknown service runtime.v1.RuntimeService`."""
    text = f"version = 2\n# keep me\n{before}\n[debug]\n  level = 'info'\n"
    changes = plan(config(text), handler="")
    new = tomllib.loads(changes["write"][MAIN])

    assert new.pop("disabled_plugins") == [f"io.containerd.snapshotter.v1.{name}" for name in kept]
    assert new == {"version": 2, "debug": {"level": "info"}}
    assert "# keep me\n" in changes["write"][MAIN]


def test_a_node_without_gpus_and_with_the_cri_is_left_alone() -> None:
    assert plan(config(KUBEADM_V2), handler="")["write"] == {}


def test_a_handler_that_is_no_longer_asked_for_is_removed() -> None:
    node = config(KUBEADM_V3)
    prepared = after(node, plan(node))

    assert plan(prepared, handler="") | {"runtimes": {}} == {
        "write": {},
        "remove": [OWN],
        "problems": [],
        "runtimes": {},
        "default": "runc",
    }


def test_a_handler_that_somebody_else_has_set_up_is_kept() -> None:
    operator = f"""version = 3
[plugins.'{CRI_V3}'.containerd.runtimes.nvidia]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'{CRI_V3}'.containerd.runtimes.nvidia.options]
  BinaryName = '/usr/local/nvidia/toolkit/nvidia-container-runtime'
  SystemdCgroup = true
"""
    node = config(f'imports = ["conf.d/*.toml"]\n{KUBEADM_V3}', **{"99-nvidia": operator})
    incomplete = config(
        f'imports = ["conf.d/*.toml"]\n{KUBEADM_V3}', **{"99-nvidia": operator.replace("runtime_type", "#")}
    )

    assert plan(node)["write"] == {}
    assert handler_of(plan(incomplete)) == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"BinaryName": "/usr/local/nvidia/toolkit/nvidia-container-runtime", "SystemdCgroup": True},
    }


@pytest.mark.parametrize(
    "table",
    [
        {"a": 1, "b": True, "c": 1.5, "d": "x", "e": ["1", "2"], "f": []},
        {"a b": {"c.d": {"e": 'say "x" \\ \t\n\x7f ü'}}},
        {"a": {"b": {"c": 1}, "d": {"e": {}}, "f": "g"}},
        {"a": [{"b": 1, "c d": "e"}, {"b": 2}], "f": {"g": [[1], [2]]}},
        {},
    ],
    ids=["values", "strings", "tables", "tables in arrays", "nothing"],
)
def test_what_is_written_is_what_is_read(table: dict[str, Any]) -> None:
    assert tomllib.loads(containerd.toml_text(table)) == table


def test_values_that_containerd_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="does not write values such as"):
        containerd.toml_text({"a": {"b": None}})


def test_a_reset_brings_back_what_was_and_leaves_what_others_have_changed_since() -> None:
    record: dict[str, dict[str, Any]] = {
        MAIN: {"before": DOCKER_PACKAGE, "set": "new"},
        OWN: {"before": None, "set": "own"},
        "/etc/containerd/conf.d/a.toml": {"before": "a", "set": "b"},
        "/etc/containerd/conf.d/gone.toml": {"before": "a", "set": "b"},
    }
    texts = {MAIN: "new", OWN: "own", "/etc/containerd/conf.d/a.toml": "theirs"}

    assert containerd.reset_plan(record, texts) == {
        # B9: a node without CRI could not run pods.
        "write": {MAIN: DOCKER_PACKAGE.replace('["cri"]', "[]")},
        "remove": [OWN],
        "left": ["/etc/containerd/conf.d/a.toml"],
    }
