"""The runtime's files: who may read them, what goes back after a failed start, and what is said then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.container_runtime_node import (
    CRI,
    DROP_IN,
    MAIN,
    ROLE,
    machine,
    node,
    on,
    prepared,
    status,
    unit,
    whats,
    with_gpus,
    written_config,
)
from tests.roles.templating import load


def test_k3s_is_told_its_default_runtime_by_an_option_and_gets_no_template() -> None:
    described = with_gpus(facts=machine("k3s", gpus=1))

    assert on("__container_runtime_plan.write", described) == {}
    assert list(on("__container_runtime_plan.write", described, nvidia="default")) == [
        "/etc/rancher/k3s/config.yaml.d/90-rankzero-runtime.yaml"
    ]


def test_new_files_are_for_root_alone_and_others_keep_their_modes() -> None:
    """They may have passwords of registries, which containerd before 2.1 has repeated in the role's file."""
    closed = node(config={"path": MAIN["path"], "files": [MAIN | {"mode": "0640"}]})

    modes = on("__container_runtime_modes", closed)

    assert modes[MAIN["path"]] == "0640"
    assert modes["/etc/containerd/conf.d/zz-rankzero.toml"] == "0600"
    # systemd complains of drop-ins that only root may read.
    assert modes[DROP_IN] == "0644"


@pytest.mark.parametrize("name", ["record", "prove", "runtime", "restore", "reset_files", "reset_record"])
def test_no_play_prints_the_runtime_s_files_and_only_root_reads_the_record(name: str) -> None:
    tasks = load(ROLE / f"tasks/{name}.yml")
    copies = [task for task in tasks if "ansible.builtin.copy" in task]

    assert copies
    for task in copies:
        assert task["diff"] is False
        assert (
            task["ansible.builtin.copy"]["mode"] == "0600" or "default('0600')" in task["ansible.builtin.copy"]["mode"]
        )


def test_what_goes_back_after_a_failed_start_is_what_the_service_was_started_with() -> None:
    """Whoever runs without leave to restart first finds the files right the second time, and none has been read yet."""
    own = "/etc/containerd/conf.d/zz-rankzero.toml"
    kubelet, containerd = DROP_IN, DROP_IN.replace("kubelet", "containerd")
    started = {"kubelet": unit(), "containerd": unit() | {"ExecMainStartTimestampMonotonic": "77"}}

    def before(**read: Any) -> Any:
        return on("__container_runtime_before", with_gpus(units=started, **read))

    first = before(drop_ins={})
    written = {"written": "77", "services": ["containerd", "kubelet"], "files": {own: {"before": None, "set": "x"}}}
    asked = {kubelet: "as asked", containerd: "as asked"}
    second = before(record=written, config=written_config(), drop_ins=asked)
    proved = before(record=written | {"written": "76"}, config=written_config(), drop_ins=asked)

    assert first == {"files": {MAIN["path"]: MAIN["text"], own: None}, "drop_ins": {kubelet: None, containerd: None}}
    assert second["files"] == {own: None}
    assert second["drop_ins"] == {kubelet: None, containerd: None}
    assert proved["files"] == {}


@pytest.mark.parametrize(
    ("member", "paths"),
    [("containerd", ["/etc/a.toml", DROP_IN.replace("kubelet", "containerd")]), ("kubelet", [DROP_IN])],
)
def test_a_service_that_does_not_start_takes_only_its_own_files_back(member: str, paths: list[str]) -> None:
    kept = {"files": {"/etc/a.toml": "a"}, "drop_ins": {DROP_IN: None, DROP_IN.replace("kubelet", "containerd"): None}}
    described = prepared() | {"__container_runtime_kept": kept, "__container_runtime_member": member}

    assert sorted(on("__container_runtime_way_home", described)) == paths


@pytest.mark.parametrize(
    ("down", "cri", "back", "words"),
    [
        ([], CRI, {"a": None}, "no. The files of before are back, and containerd works with them."),
        ([], CRI, {}, "no. The role had changed no file of it, and containerd works."),
        (["containerd is down"], CRI, {"a": None}, "containerd does not work with them either (containerd is down)."),
        ([], CRI | {"ready": False, "problem": "no CNI"}, {"a": None}, "does not work with them either (no CNI)."),
        ([], CRI | {"ready": False, "crictl": ""}, {"a": None}, "containerd works with them."),
    ],
    ids=["back", "nothing to take back", "down", "CRI not ready", "no crictl"],
)
def test_the_report_after_a_failed_start_says_what_is_true(
    down: list[str], cri: dict[str, Any], back: dict[str, Any], words: str
) -> None:
    described = prepared(down=down, cri=cri) | {
        "__container_runtime_reason": "no.",
        "__container_runtime_restarted": True,
        "__container_runtime_member": "containerd",
        "__container_runtime_back": back,
    }

    report = on("__container_runtime_restored_report", described)

    assert report["status"] == "failed"
    assert words in report["why"]


def test_limits_that_the_cri_takes_from_a_file_are_an_error_though_the_proof_does_not_see_them() -> None:
    """B20: kubespray's cri-base.json gives pods 65535 open files."""
    spec = {"/etc/containerd/cri-base.json": {"nofile": {"soft": 65535, "hard": 65535}}}
    enough = {"/etc/containerd/cri-base.json": {"nofile": {"soft": 1048576, "hard": 1048576}}}

    assert status(prepared(cri=CRI | {"base_specs": spec})) == "failed"
    assert "cri-base.json gives every pod nofile 65535, not 1048576" in whats(prepared(cri=CRI | {"base_specs": spec}))
    assert status(prepared(cri=CRI | {"base_specs": enough})) == "ok"
