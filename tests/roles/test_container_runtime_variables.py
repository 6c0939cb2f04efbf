"""What container_runtime's variables come to on a node, and which arguments it refuses, by Ansible's own templating."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.cache import REPO
from tests.roles.templating import evaluate, load

ROLE = REPO / "roles/container_runtime"
CAPABLE, NOT_CAPABLE = "000001ffffffffff", "000001fffeffffff"
LIMITS = "Max open files      {nofile} {nofile} files\nMax locked memory   {memlock} {memlock} bytes\n"
DROP_IN = "/etc/systemd/system/kubelet.service.d/90-rankzero-limits.conf"

MAIN = {"path": "/etc/containerd/config.toml", "text": "version = 3\n", "mode": "0644"}
CRI = {
    "crictl": "/usr/bin/crictl",
    "answers": True,
    "ready": True,
    "runtimes": {"runc": {}},
    "default": "runc",
    "cdi": None,
    "problem": "",
    "base_specs": {},
}
NVIDIA = {"BinaryName": "/usr/bin/nvidia-container-runtime"}
DRIVER = "580.95.05"


def machine(
    distribution: str = "kubeadm", gpus: int = 0, kind: str = "containerd", driver: str | None = None
) -> dict[str, Any]:
    """What machine_facts has that the role reads."""
    return {
        "os": {"family": "Debian"},
        "kernel": {"arch": "x86_64"},
        "gpus": [{}] * gpus,
        "driver": {"loaded": driver},
        "check_mode": False,
        "kubernetes": {"distribution": distribution},
        "runtime": {
            "kind": kind,
            "service": "k3s-agent" if distribution == "k3s" else kind,
            "socket": "/run/containerd/containerd.sock",
            "version": "2.2.1",
        },
    }


def node(
    capabilities: str = CAPABLE,
    services: tuple[str, ...] = ("containerd", "kubelet"),
    record: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    **read: Any,
) -> dict[str, Any]:
    """The result of tasks/read.yml on a node, with ``read`` on top."""
    return {
        "__container_runtime_node": {
            "record": record or {},
            "drop_ins": {},
            "process_1": {
                "limits": LIMITS.format(nofile=20000, memlock=8388608),
                "status": f"CapEff:\t{capabilities}",
                "uid_map": "0 0 4294967295",
            },
            "units": {name: unit(loaded=name in services) for name in ("containerd", "kubelet", "k3s-agent")},
            "down": [],
            "running": {},
            "nr_open": 1048576,
            "unwritable": [],
            "config": {"path": "/etc/containerd/config.toml", "files": [{**MAIN}]},
            "files": {},
            "sources": [],
            "cri": CRI,
            "gpus": {"devices": [], "unlinked": [], "cut_off": 0},
            "toolkit": {"runtime": "", "version": ""},
            "specifications": [],
            **read,
        },
        "machine_facts": facts or machine(),
        "__container_runtime_os": load(ROLE / "vars/os/Debian.yml")["__container_runtime_os"],
        "__container_runtime_udev_text": "as asked",
        # Where the template is found is Ansible's affair during a play.
        "__container_runtime_drop_in_text": "as asked",
    }


def unit(
    nofile: str = "524288", memlock: str = "8388608", *, loaded: bool = True, waits: bool = False
) -> dict[str, str]:
    """What systemd shows of a service."""
    return {
        "LoadState": "loaded" if loaded else "not-found",
        "NeedDaemonReload": "yes" if waits else "no",
        "LimitNOFILE": nofile,
        "LimitMEMLOCK": memlock,
    }


ASKED_UNIT = unit("1048576", "infinity")
ASKED_PROCESS = LIMITS.format(nofile=1048576, memlock="unlimited")
EARLIER_PROCESS = LIMITS.format(nofile=524288, memlock=8388608)


def prepared(**read: Any) -> dict[str, Any]:
    """A node on which the role has done all with its defaults, with ``read`` on top."""
    done: dict[str, Any] = {
        "record": {"services": ["kubelet"], "files": {}},
        "drop_ins": {DROP_IN: "as asked"},
        "units": {"kubelet": ASKED_UNIT},
        "running": {"kubelet": ASKED_PROCESS},
    }
    return node(**(done | read))


def on(expression: str, described: dict[str, Any], **arguments: Any) -> Any:
    return evaluate(
        ROLE, expression, described | {f"container_runtime_{name}": value for name, value in arguments.items()}
    )


def refusals(described: dict[str, Any], **arguments: Any) -> list[str]:
    found: list[str] = on("__container_runtime_refusals", described, **arguments)
    return found


def status(described: dict[str, Any], **arguments: Any) -> str:
    found: str = on("__container_runtime_report.status", described, **arguments)
    return found


def test_the_defaults_are_fit_for_a_machine() -> None:
    assert refusals(node()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"services": ["kubelet", "containrd"]}, "container_runtime_services names containrd, a unit that systemd"),
        ({"limit_nofile": "0"}, "container_runtime_limit_nofile is 0, less than services have without the role"),
        ({"limit_memlock": 65536}, "container_runtime_limit_memlock is 65536 bytes, less than services have"),
        # B20: with infinity, programs allocate memory for a thousand million files.
        ({"limit_nofile": "infinity"}, "container_runtime_limit_nofile is infinity, more than this node's fs.nr_open"),
        ({"limit_nofile": 2097152}, "container_runtime_limit_nofile is 2097152, more than this node's fs.nr_open"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_harms_is_refused_in_one_sentence(arguments: dict[str, Any], words: str) -> None:
    (sentence,) = refusals(node(), **arguments)

    assert words in sentence


def test_a_read_only_file_system_is_refused_before_anything_changes_unless_nothing_is_to_change() -> None:
    assert "/etc on this node cannot be written to" in refusals(node(unwritable=["/etc"]))[0]
    assert refusals(prepared(unwritable=["/etc"])) == []


def test_all_broken_rules_are_told_together() -> None:
    assert len(refusals(node(), limit_nofile=1, limit_memlock=1)) == 2


def test_a_node_without_any_service_to_limit_is_refused() -> None:
    (sentence,) = refusals(node(services=()))

    assert "Install Kubernetes first" in sentence


def test_the_services_of_k3s_are_found_as_those_of_kubeadm_are() -> None:
    assert on("__container_runtime_services", node(services=("k3s-agent",))) == ["k3s-agent"]
    assert on("__container_runtime_services", node()) == ["containerd", "kubelet"]


def test_limits_that_a_container_cannot_grant_are_refused_with_what_it_can() -> None:
    nofile, memlock = refusals(node(capabilities=NOT_CAPABLE))

    assert "may grant at most 20000" in nofile
    assert "may grant at most 8388608 bytes" in memlock


def test_limits_that_a_container_cannot_grant_are_lowered_where_that_is_asked_for() -> None:
    container = node(capabilities=NOT_CAPABLE)

    assert refusals(container, limit_beyond_host="lower") == []
    assert on("__container_runtime_limits", container, limit_beyond_host="lower") == {
        "nofile": 20000,
        "memlock": 8388608,
    }


def test_lowering_leaves_limits_alone_that_the_node_grants() -> None:
    asked = on("__container_runtime_asked_limits", node())

    assert on("__container_runtime_limits", node(), limit_beyond_host="lower") == asked


def test_a_container_is_not_asked_for_more_than_it_can_grant() -> None:
    assert refusals(node(capabilities=NOT_CAPABLE), limit_nofile=20000, limit_memlock=8388608) == []


def left_to_undo(**read: Any) -> list[str]:
    described = node(record={"services": ["kubelet"]}, **read)
    found: list[str] = on(
        "__container_runtime_unreleased_services", described | {"__container_runtime_released_services": ["kubelet"]}
    )
    return found


def test_a_reset_is_not_finished_while_a_unit_waits_for_its_reload() -> None:
    units = {"kubelet": unit("1048576", "infinity", waits=True)}

    assert left_to_undo(units=units, running={"kubelet": ASKED_PROCESS}) == ["kubelet"]


def test_a_reset_is_not_finished_while_a_process_has_other_limits_than_its_unit() -> None:
    assert left_to_undo(units={"kubelet": unit()}, running={"kubelet": ASKED_PROCESS}) == ["kubelet"]


@pytest.mark.parametrize("running", [{}, {"kubelet": EARLIER_PROCESS}], ids=["stopped", "restarted"])
def test_a_reset_is_finished_once_no_process_has_the_role_s_limits(running: dict[str, str]) -> None:
    assert left_to_undo(units={"kubelet": unit()}, running=running) == []


def test_a_reset_does_not_stop_a_runtime_that_would_not_start_again() -> None:
    def described(text: str) -> dict[str, Any]:
        started = {"containerd": unit() | {"ExecMainStartTimestampMonotonic": "77"}}
        config = {"path": MAIN["path"], "files": [MAIN | {"text": text}]}
        facts = {"__container_runtime_reset_start": "77", "__container_runtime_released_services": ["containerd"]}
        return node(units=started, config=config) | facts

    assert on("__container_runtime_released_restarts", described("version = 3")) == ["containerd"]
    assert on("__container_runtime_released_restarts", described("version =")) == []
    assert "is not TOML" in on("__container_runtime_reset_why", described("version ="))


def test_the_record_keeps_services_that_are_no_longer_asked_for() -> None:
    record = on("__container_runtime_new_record", node(record={"services": ["crio"], "files": {}}))

    assert record["services"] == ["containerd", "crio", "kubelet"]


def test_a_node_on_which_everything_holds_keeps_its_label() -> None:
    assert on("__container_runtime_as_asked", prepared()) is True
    assert status(prepared()) == "ok"


@pytest.mark.parametrize(
    ("described", "arguments"),
    [
        (prepared(), {"limit_memlock": "68719476736"}),
        (prepared(drop_ins={}), {}),
        (prepared(drop_ins={DROP_IN: "edited"}), {}),
        (prepared(running={"kubelet": EARLIER_PROCESS}), {}),
        (prepared(units={"kubelet": ASKED_UNIT | {"NeedDaemonReload": "yes"}}), {}),
        (prepared(units={"kubelet": unit()}, running={}), {}),
        (node(), {}),
    ],
    ids=["higher limit", "no drop-in", "other drop-in", "old process", "unread drop-in", "old unit", "never prepared"],
)
def test_a_node_on_which_something_does_not_hold_loses_its_label_first(
    described: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert on("__container_runtime_as_asked", described, **arguments) is False


def test_limits_that_wait_for_a_reload_are_no_failure_but_are_named_also_for_a_service_that_does_not_run() -> None:
    held_back = prepared(
        units={"kubelet": unit()}, running={}, gpus={"devices": ["/dev/nvidiactl"], "unlinked": [], "cut_off": 1}
    )

    report = on("__container_runtime_report", held_back)

    assert report["status"] == "waiting"
    assert report["restart_services"] == ["kubelet"]
    assert (
        "kubelet do not have the limits asked for yet (LimitNOFILE of kubelet is 524288, not 1048576" in report["why"]
    )


def test_limits_that_do_not_hold_after_a_restart_that_was_allowed_are_a_failure() -> None:
    assert status(prepared(running={"kubelet": EARLIER_PROCESS})) == "waiting"
    assert status(prepared(running={"kubelet": EARLIER_PROCESS}), restart_ok=True) == "failed"


def test_a_drop_in_that_is_not_there_is_a_failure_also_without_leave_to_restart() -> None:
    assert status(prepared(drop_ins={})) == "failed"


def test_limits_that_were_lowered_are_told_and_are_no_failure() -> None:
    units, running = {"kubelet": unit("20000", "8388608")}, {"kubelet": LIMITS.format(nofile=20000, memlock=8388608)}
    container = prepared(capabilities=NOT_CAPABLE, units=units, running=running)

    report = on("__container_runtime_report", container, limit_beyond_host="lower")

    assert report["status"] == "ok"
    assert [finding["severity"] for finding in report["findings"]] == ["warning", "info"]
    assert "at most nofile 20000 and memlock 8388608" in report["findings"][0]["what"]


def test_what_was_asked_for_is_the_same_on_nodes_that_differ() -> None:
    arguments: dict[str, Any] = {"limit_beyond_host": "lower"}
    asked = on("__container_runtime_asked", node(), **arguments)

    assert asked == on("__container_runtime_asked", node(capabilities=NOT_CAPABLE), **arguments)
    assert asked == on("__container_runtime_asked", node(services=("k3s-agent",)), **arguments)
    assert asked != on("__container_runtime_asked", node(), limit_memlock="68719476736", **arguments)


def test_no_container_to_cut_off_or_leave_makes_a_reload_harmless() -> None:
    """B5: a reload of systemd cuts containers off GPUs that /dev/char did not name when they were started."""

    def reload_ok(described: dict[str, Any], **arguments: Any) -> bool:
        answer: bool = on("__container_runtime_reload_ok", described, **arguments)
        return answer

    def gpus(cut_off: int) -> dict[str, Any]:
        return {"devices": ["/dev/nvidiactl"], "unlinked": [], "cut_off": cut_off}

    assert not reload_ok(prepared(gpus=gpus(1)))
    assert reload_ok(prepared())
    assert reload_ok(prepared(gpus=gpus(0)))
    assert reload_ok(prepared(gpus=gpus(1)), restart_ok="true")


def with_gpus(runtimes: dict[str, Any] | None = None, toolkit: str = "1.20.2", **read: Any) -> dict[str, Any]:
    """A node with a GPU and the toolkit, with ``read`` on top."""
    facts = read.pop("facts", machine(gpus=1, driver=DRIVER))
    done: dict[str, Any] = {
        "toolkit": {"runtime": "/usr/bin/nvidia-container-runtime" if toolkit else "", "version": toolkit},
        "cri": CRI | {"runtimes": runtimes if runtimes is not None else {"runc": {}}},
        "files": {"/etc/udev/rules.d/71-rankzero-nvidia-dev-char.rules": "as asked"},
    }
    return prepared(facts=facts, **(done | read))


def written_config(**arguments: Any) -> dict[str, Any]:
    """containerd's files once the role has written them on a node with GPUs."""
    texts = on("__container_runtime_plan.write", with_gpus(), **arguments)
    files = [{"path": path, "text": text, "mode": "0644"} for path, text in texts.items()]
    return {"path": MAIN["path"], "files": files}


def whats(described: dict[str, Any], **arguments: Any) -> str:
    """What the report finds, on one line."""
    found = on("__container_runtime_report.findings", described, **arguments)
    return " ".join(finding["what"] for finding in found)


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
        (with_gpus(), {"toolkit_key": "/nowhere/key.asc"}, "neither a URL nor a file"),
        (
            with_gpus(config={"path": MAIN["path"], "files": [MAIN | {"text": "version ="}]}),
            {},
            "/etc/containerd/config.toml is not TOML",
        ),
    ],
    ids=["CRI-O", "no toolkit", "no binary", "old version", "no key", "not TOML"],
)
def test_a_runtime_for_gpus_that_cannot_be_had_is_refused(
    described: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    (sentence,) = refusals(described, **arguments)

    assert words in sentence


def test_a_source_of_somebody_else_for_the_same_repository_is_used() -> None:
    theirs, ours = "/etc/apt/sources.list.d/nvidia-container-toolkit.list", on("__container_runtime_os.source", node())

    assert on("__container_runtime_foreign_sources", node(sources=[ours, theirs])) == [theirs]


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


def test_the_toolkit_is_not_changed_under_containers_that_its_packages_would_cut_off() -> None:
    """B5: its packages reload systemd when they are installed."""
    used = {"devices": ["/dev/nvidiactl"], "unlinked": [], "cut_off": 1}
    has_all = CRI | {"runtimes": {"runc": {}, "nvidia": NVIDIA}}
    described = with_gpus(toolkit="1.17.4", gpus=used, config=written_config(), cri=has_all)

    assert on("__container_runtime_toolkit_held", described) is True
    assert status(described) == "waiting"
    assert "cuts running containers off their GPUs" in whats(described)
    assert on("__container_runtime_toolkit_held", described, restart_ok=True) is False
    assert on("__container_runtime_toolkit_held", with_gpus(toolkit="", gpus=used)) is False
    assert on("__container_runtime_toolkit_held", with_gpus(toolkit="1.17.4")) is False
