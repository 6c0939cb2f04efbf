"""What container_runtime does for GPUs: toolkit, handlers, CDI and the proof, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.container_runtime_node import (
    ASKED_PROCESS,
    ASKED_UNIT,
    CRI,
    DRIVER,
    DROP_IN,
    MAIN,
    NVIDIA,
    machine,
    node,
    on,
    prepared,
    refusals,
    status,
    whats,
    with_gpus,
    written_config,
)


def test_a_node_without_gpus_says_that_it_gets_nothing_for_them() -> None:
    report = on("__container_runtime_report", prepared())

    assert report["status"] == "ok"
    assert "no NVIDIA GPU" in whats(prepared())
    assert whats(prepared(), nvidia="none") == ""


def test_a_node_with_gpus_gets_the_handler_and_waits_for_the_restart() -> None:
    bare = with_gpus()
    written = on("__container_runtime_plan.write", bare)
    done = with_gpus(
        config={
            "path": MAIN["path"],
            "files": [{"path": path, "text": text, "mode": "0644"} for path, text in written.items()],
        }
    )

    assert list(written) == ["/etc/containerd/conf.d/zz-rankzero.toml", "/etc/containerd/config.toml"]
    assert status(bare) == "failed"
    assert status(done) == "waiting"
    assert "the running CRI has no runtime nvidia, only runc" in whats(done)
    assert on("__container_runtime_restart_services", done) == ["containerd"]


def test_the_running_cri_is_compared_with_the_files_option_by_option() -> None:
    files = on("__container_runtime_plan.write", with_gpus())
    config = {
        "path": MAIN["path"],
        "files": [{"path": path, "text": text, "mode": "0644"} for path, text in files.items()],
    }

    assert status(with_gpus({"runc": {}, "nvidia": NVIDIA}, config=config)) == "ok"
    assert "BinaryName of the running CRI's runtime nvidia is '/old'" in whats(
        with_gpus({"runc": {}, "nvidia": {"BinaryName": "/old"}}, config=config)
    )
    assert "the default runtime is runc, not nvidia" not in whats(with_gpus({"nvidia": NVIDIA}, config=config))


def test_a_runtime_that_no_file_defines_any_more_waits_for_a_restart() -> None:
    described = prepared(cri=CRI | {"runtimes": {"runc": {}, "nvidia": NVIDIA}})

    assert "still has the runtime nvidia" in whats(described)
    assert status(described) == "waiting"


def test_a_node_without_crictl_passes_only_where_no_runtime_was_asked_for() -> None:
    silent = CRI | {"crictl": "", "answers": False}
    report = on("__container_runtime_report", prepared(cri=silent))

    assert report["status"] == "ok"
    assert any("cri-tools" in finding["fix"] for finding in report["findings"])
    assert status(with_gpus(cri=silent, config=written_config())) == "failed"
    assert status(with_gpus(cri=silent), nvidia="none") == "ok"


def test_a_runtime_that_nobody_can_ask_is_started_again_once_its_files_are_written() -> None:
    """Whoever runs without leave to restart first finds the files right the second time."""

    def on_node(written: str) -> dict[str, Any]:
        started = {"kubelet": ASKED_UNIT, "containerd": ASKED_UNIT | {"ExecMainStartTimestampMonotonic": "77"}}
        record = {"services": ["containerd", "kubelet"], "files": {}, "written": written}
        silent = CRI | {"crictl": "", "answers": False}
        drop_ins = {DROP_IN.replace("kubelet", name): "as asked" for name in ("containerd", "kubelet")}
        running = {"containerd": ASKED_PROCESS, "kubelet": ASKED_PROCESS}
        return prepared(units=started, record=record, cri=silent, drop_ins=drop_ins, running=running)

    assert on("__container_runtime_restart_services", on_node("77")) == ["containerd"]
    assert on("__container_runtime_as_asked", on_node("77")) is False
    assert status(on_node("77")) == "waiting"
    assert on("__container_runtime_restart_services", on_node("76")) == []
    assert on("__container_runtime_as_asked", on_node("76")) is True
    bare = with_gpus(units={"containerd": ASKED_UNIT | {"ExecMainStartTimestampMonotonic": "77"}})
    assert on("__container_runtime_new_record.written", bare) == "77"


@pytest.mark.parametrize(
    ("toolkit", "arguments", "wrong"),
    [
        ("", {}, True),
        ("1.17.8", {}, True),
        ("1.18.0", {}, False),
        ("1.20.2", {"toolkit_version": "1.20.1"}, True),
        ("1.20.2", {"toolkit_version": "1.20.2"}, False),
        ("", {"toolkit": "false"}, False),
        ("", {"nvidia": "none"}, False),
    ],
    ids=["none", "old", "least", "other", "pinned", "not ours", "no runtime"],
)
def test_the_toolkit_is_installed_where_it_is_missing_old_or_another(
    toolkit: str, arguments: dict[str, Any], wrong: bool
) -> None:
    assert on("__container_runtime_toolkit_wrong", with_gpus(toolkit=toolkit), **arguments) is wrong


def test_all_packages_of_the_toolkit_have_the_version_that_is_asked_for() -> None:
    packages = on("__container_runtime_packages", with_gpus(), toolkit_version="1.20.2")

    assert packages[0] == "nvidia-container-toolkit=1.20.2-1"
    assert all(package.endswith("=1.20.2-1") for package in packages)
    assert on("__container_runtime_packages", with_gpus())[0] == "nvidia-container-toolkit"


@pytest.mark.parametrize(
    ("described", "arguments", "words"),
    [
        (with_gpus(facts=machine(gpus=1, kind="crio")), {}, "CRI-O, whose files the role does not write"),
        (with_gpus(toolkit=""), {"toolkit": False}, "nvidia-container-runtime is not installed"),
        (
            with_gpus(toolkit=""),
            {"toolkit": False, "nvidia_binary": "/opt/nvidia-container-runtime"},
            "not at /opt/nvidia-container-runtime",
        ),
        (with_gpus(), {"toolkit_version": "1.13.5"}, "give at least 1.18.0"),
        (
            with_gpus(),
            {"toolkit_version": "latest"},
            "container_runtime_toolkit_version is latest, which is no version",
        ),
        (with_gpus(), {"toolkit_key": "/nowhere/key.asc"}, "neither a URL nor a file"),
        (
            with_gpus(config={"path": MAIN["path"], "files": [MAIN | {"text": "version ="}]}),
            {},
            "/etc/containerd/config.toml is not TOML",
        ),
    ],
    ids=["CRI-O", "no toolkit", "no binary", "old version", "no version", "no key", "not TOML"],
)
def test_a_runtime_for_gpus_that_cannot_be_had_is_refused(
    described: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    (sentence,) = refusals(described, **arguments)

    assert words in sentence


def test_a_source_of_somebody_else_for_the_same_repository_is_used() -> None:
    theirs, ours = "/etc/apt/sources.list.d/nvidia-container-toolkit.list", on("__container_runtime_os.source", node())

    assert on("__container_runtime_foreign_sources", node(sources={ours: ["x"], theirs: ["x"]})) == [theirs]


@pytest.mark.parametrize(
    ("specifications", "wrong"),
    [
        ([], True),
        ([{"path": "/etc/cdi/nvidia.yaml", "driver": "575.57.08"}], True),
        ([{"path": "/etc/cdi/nvidia.yaml", "driver": DRIVER}], False),
    ],
    ids=["none", "of the driver before", "of this driver"],
)
def test_a_cdi_specification_is_that_of_the_driver_that_is_loaded(
    specifications: list[dict[str, str]], wrong: bool
) -> None:
    described = with_gpus(specifications=specifications)

    assert on("__container_runtime_cdi_wrong", described, nvidia="cdi") is wrong
    assert on("__container_runtime_cdi_wrong", described) is False


def test_a_node_without_its_driver_yet_is_told_that_there_is_no_cdi_specification() -> None:
    described = with_gpus(facts=machine(gpus=1))

    assert status(described, nvidia="cdi") == "ok"
    assert "no driver is loaded" in whats(described, nvidia="cdi")


def test_the_proof_holds_until_the_runtime_is_started_again() -> None:
    started = {"containerd": ASKED_UNIT | {"ExecMainStartTimestampMonotonic": "77"}}
    limits = {"nofile": {"soft": 1048576, "hard": 1048576}, "memlock": {"soft": 2**64 - 1, "hard": 2**64 - 1}}

    def on_node(start: str, proved: dict[str, Any] = limits) -> dict[str, Any]:
        record = {"services": ["containerd"], "files": {}, "proof": {"started": start, "limits": proved}}
        drop_ins = {DROP_IN.replace("kubelet", "containerd"): "as asked"}
        return prepared(units=started, running={"containerd": ASKED_PROCESS}, record=record, drop_ins=drop_ins)

    less = limits | {"nofile": {"soft": 1024, "hard": 1048576}}
    assert on("__container_runtime_proof_needed", on_node("77")) is False
    assert on("__container_runtime_proof_needed", on_node("76")) is True
    assert status(on_node("77")) == "ok"
    assert status(on_node("77", less)) == "failed"
    assert "a container that nobody runs has the limits" in whats(on_node("77", less))


def test_the_toolkit_is_not_changed_under_containers_that_its_packages_would_cut_off() -> None:
    """B5: its packages reload systemd when they are installed."""
    used = {"devices": ["/dev/nvidiactl"], "unlinked": [], "cut_off": 1}
    has_all = CRI | {"runtimes": {"runc": {}, "nvidia": NVIDIA}}
    described = with_gpus(toolkit="1.17.4", gpus=used, config=written_config(), cri=has_all)

    assert on("__container_runtime_toolkit_held", described) is True
    assert status(described) == "waiting"
    assert "cuts running containers off their GPUs" in whats(described)
    assert on("__container_runtime_toolkit_held", described, restart_ok=True) is True  # nobody knows that it is drained
    assert on("__container_runtime_toolkit_held", with_gpus(toolkit="", gpus=used)) is False
    assert on("__container_runtime_toolkit_held", with_gpus(toolkit="1.17.4")) is False
