"""What K3s and RKE2 are given so that they write the containerd configuration that is wanted."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml

from roles.container_runtime.filter_plugins import container_runtime_cri as cri
from roles.container_runtime.filter_plugins import container_runtime_k3s as k3s
from roles.container_runtime.filter_plugins.container_runtime_containerd import reset_plan

AGENT = "/var/lib/rancher/k3s/agent/etc/containerd"
RENDERED, V2, V3 = f"{AGENT}/config.toml", f"{AGENT}/config.toml.tmpl", f"{AGENT}/config-v3.toml.tmpl"
OPTION = "/etc/rancher/k3s/config.yaml.d/90-rankzero-runtime.yaml"
OPT = "/opt/nvidia/nvidia-container-runtime"
VERSION_3 = """version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = true
"""


def plan(files: dict[str, str] | None = None, **wanted: Any) -> dict[str, Any]:
    node = {"files": files or {}, "rendered": RENDERED, "templates": [V2, V3], "option": OPTION}
    usual = {"handler": "nvidia", "binary": k3s.SEARCHED[0], "default": False, "cdi": False, "template": False}
    return k3s.k3s_plan(node, usual | wanted)


def test_a_toolkit_where_k3s_looks_for_it_needs_no_file() -> None:
    """B10: a template breaks on upgrades, and is not needed."""
    assert plan()["write"] == {}
    assert plan(template=True, binary=k3s.SEARCHED[1])["write"] == {}


def test_the_default_runtime_is_an_option_of_k3s() -> None:
    changes = plan(default=True)

    assert yaml.safe_load(changes["write"][OPTION]) == {"default-runtime": "nvidia"}
    assert plan(changes["write"], default=True)["write"] == {}
    assert plan(changes["write"])["remove"] == [OPTION]


@pytest.mark.parametrize(("rendered", "path"), [(VERSION_3, V3), ("version = 2\n", V2)], ids=["v3", "v2"])
def test_a_template_is_written_only_when_asked_and_adds_to_the_base(rendered: str, path: str) -> None:
    refused = plan({RENDERED: rendered}, binary=OPT)
    changes = plan({RENDERED: rendered}, binary=OPT, template=True)
    text = changes["write"][path]
    (section,) = tomllib.loads(text.replace(k3s.BASE, ""))["plugins"].values()

    assert "Set container_runtime_k3s_template to true" in refused["problems"][0]
    assert refused["write"] == {}
    assert section["containerd"]["runtimes"]["nvidia"]["options"] == {
        "BinaryName": OPT,
        "SystemdCgroup": rendered == VERSION_3,
    }
    assert k3s.copied_templates({path: text}, [V2, V3]) == []
    assert plan({RENDERED: rendered, path: text}, binary=OPT, template=True)["write"] == {}
    assert plan({RENDERED: rendered, path: text})["remove"] == [path]


@pytest.mark.parametrize(
    ("files", "words"),
    [({}, "Start K3s or RKE2 once"), ({RENDERED: VERSION_3, V3: "version = 3"}, "somebody else's")],
    ids=["never started", "foreign"],
)
def test_a_template_that_cannot_be_written_is_said(files: dict[str, str], words: str) -> None:
    changes = plan(files, binary=OPT, template=True)

    assert words in changes["problems"][0]
    assert (changes["write"], changes["remove"]) == ({}, [])


def test_a_copy_of_the_whole_configuration_is_named() -> None:
    files = {V2: "version = 2\n[plugins.cri]\n", V3: '{{- template "base" . -}}\n'}

    assert k3s.copied_templates(files, [V2, V3]) == [V2]


def test_a_file_s_text_of_before_is_that_of_the_first_time_unless_somebody_else_has_changed_it() -> None:
    first = cri.file_record({}, {"write": {"/a": "1", "/b": "1"}, "remove": []}, {"/a": "0"})
    second = cri.file_record(first, {"write": {"/a": "2"}, "remove": ["/b"]}, {"/a": "1", "/b": "1"})
    other = cri.file_record(first, {"write": {"/a": "2"}, "remove": []}, {"/a": "theirs", "/b": "1"})

    assert first == {"/a": {"before": "0", "set": "1"}, "/b": {"before": None, "set": "1"}}
    assert second == {"/a": {"before": "0", "set": "2", "earlier": "1"}}
    assert other["/a"] == {"before": "theirs", "set": "2"}


def test_a_file_s_text_of_before_outlives_a_run_whose_new_text_did_not_come_or_did_not_last() -> None:
    first = cri.file_record({}, {"write": {"/a": "1", "/b": "1"}, "remove": []}, {"/a": "0"})
    for new in ("2", "3"):
        first = cri.file_record(first, {"write": {"/a": new, "/b": new}, "remove": []}, {"/a": "1", "/b": "1"})

    assert {path: entry["before"] for path, entry in first.items()} == {"/a": "0", "/b": None}
    assert reset_plan(first, {"/a": "1", "/b": "1"}) == {"write": {"/a": "0"}, "remove": ["/b"], "left": []}


def test_a_broken_file_of_k3s_is_a_sentence() -> None:
    (sentence,) = plan({RENDERED: "version ="}, template=True, binary=OPT)["problems"]

    assert f"{RENDERED} is not TOML" in sentence
