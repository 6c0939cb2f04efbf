"""What nvidia_driver refuses on a node, and what leave allows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.roles.nvidia_driver_node import (
    DEBIAN,
    ROLE,
    answer,
    files,
    installed,
    node,
    read,
    report,
    with_facts,
    with_node,
)
from tests.roles.templating import evaluate


def refusals(system: str = "Debian-12", **changed: Any) -> list[str]:
    """Why the role would leave the node as it is."""
    refused: list[str] = evaluate(ROLE, "__nvidia_driver_refusals", node(system, **changed))
    return refused


def test_a_node_without_a_driver_and_a_complete_mirror_has_nothing_to_refuse() -> None:
    assert refusals(__nvidia_driver_candidates=answer(*DEBIAN)) == []


OLDER = {"nvidia-driver-cuda": {"version": "575.57.08-1", "held": True}}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            with_facts(os={"id": "arch", "version": "", "family": "Debian", "name": "Arch Linux"}),
            ["Arch Linux is not a system", "nvidia_driver_source to none"],
        ),
        ({"nvidia_driver_reboot_timeout": 0}, ["nvidia_driver_reboot_timeout is 0 s", "at least 60"]),
        ({"nvidia_driver_version": "575.57.08"}, ["nvidia_driver_version is 575.57.08", "branch 580"]),
        (with_facts(secure_boot=True), ["Secure Boot is on", "mokutil", "nvidia_driver_own_key_enrolled"]),
        (with_node(packages=OLDER), ["nvidia_driver_branch 580", "575.57.08-1", "nvidia_driver_allow_branch_change"]),
        (with_node(users=[{"pid": 7, "program": "python", "pod": False}]), ["python (process 7)", "Drain the node"]),
        (with_node(unwritable=["/etc"]), ["/etc cannot be written to", "read-only"]),
        (
            {
                "nvidia_driver_source": "distro",
                **with_facts(nvswitches=[{"address": "0000:01:00.0", "device": "22A3"}]),
            },
            ["has no fabric manager", "nvidia_driver_source to cuda_repo"],
        ),
        (
            with_facts(kernel={"release": "6.18.1", "arch": "x86_64", "installed": [], "next": None}),
            ["6.18.1 has no flavour", "nvidia_driver_kernel_flavor"],
        ),
    ],
    ids=[
        *(
            "unknown system",
            "no time to boot",
            "version of another branch",
            "secure boot",
            "another branch",
            "GPU in use",
            "read-only /etc",
        ),
        *("no fabric manager", "no flavour"),
    ],
)
def test_what_would_harm_the_node_is_refused_with_variable_value_and_way_out(
    changed: dict[str, Any], words: list[str]
) -> None:
    (refusal,) = refusals(**changed)

    assert [word for word in words if word not in refusal] == []


def test_rocky_has_no_driver_of_its_own() -> None:
    (refusal,) = refusals("RedHat-9", nvidia_driver_source="distro")

    assert "Rocky Linux 9.6 has no NVIDIA driver of its own" in refusal


def test_a_package_that_no_repository_has_is_refused_by_its_name() -> None:
    available = answer(*DEBIAN)
    available["versions"]["nvidia-modprobe"] = []

    (refusal,) = refusals(__nvidia_driver_candidates=available)

    assert "no repository of this node has the package nvidia-modprobe" in refusal


def test_all_reasons_are_given_at_once() -> None:
    assert len(refusals(**with_facts(secure_boot=True), **with_node(unwritable=["/etc"]))) == 2


def test_secure_boot_is_no_reason_where_the_modules_come_signed() -> None:
    facts = read("Ubuntu-24.04")["machine_facts"] | {"secure_boot": True}

    assert refusals("Ubuntu-24.04", nvidia_driver_source="distro", machine_facts=facts) == []


WITH_LEAVE = {"nvidia_driver_allow_branch_change": True, "nvidia_driver_own_key_enrolled": True}


@pytest.mark.parametrize("no", [False, "false", "no", "0"])
def test_leave_that_is_denied_in_any_spelling_is_denied(no: Any) -> None:
    denied = dict.fromkeys(WITH_LEAVE, no)

    assert len(refusals(**denied, **with_node(packages=OLDER), **with_facts(secure_boot=True))) == 2
    assert not evaluate(ROLE, "__nvidia_driver_arguments", node("Debian-12", nvidia_driver_reboot_ok=no))["reboot_ok"]
    assert "52rankzero-nvidia" not in files("Debian-12", nvidia_driver_hold=no)


@pytest.mark.parametrize("yes", [True, "true", "yes", "1"])
def test_leave_that_is_given_in_any_spelling_is_given(yes: Any) -> None:
    given = dict.fromkeys(WITH_LEAVE, yes)

    assert refusals(**given, **with_node(packages=OLDER), **with_facts(secure_boot=True)) == []
    assert "52rankzero-nvidia" in files("Debian-12", nvidia_driver_hold=yes)


def value(expression: str, **changed: Any) -> Any:
    """One of the role's variables."""
    return evaluate(ROLE, expression, node("Debian-12", **changed))


def test_packages_under_a_driver_that_is_loaded_change_only_with_leave() -> None:
    asked = installed() | {"nvidia_driver_version": "580.105.08"}

    assert not value("__nvidia_driver_permitted", **asked)
    assert value("__nvidia_driver_permitted", **asked, nvidia_driver_reboot_ok="true")
    assert value("__nvidia_driver_permitted", **installed(loaded="") | {"nvidia_driver_version": "580.105.08"})
    published = report(**asked)
    assert published["status"] == "waiting"
    assert "upgrade_driver.yml" in published["why"]


@pytest.mark.parametrize(
    ("pod", "refused"), [(True, 0), (False, 1)], ids=["pods are drained", "nothing moves the others"]
)
def test_no_reboot_takes_a_process_outside_of_pods_by_surprise(pod: bool, refused: int) -> None:
    user = {"pid": 7, "program": "python", "pod": pod}
    scope = node("Debian-12", **installed(loaded="575.57.08", nvidia_driver_reboot_ok=True))
    scope["__nvidia_driver_node"] |= {"users": [user]}
    scope["__nvidia_driver_wrong"] = {}
    scope["__nvidia_driver_as_asked"] = True

    assert len(evaluate(ROLE, "__nvidia_driver_refusals", scope)) == refused


def test_a_password_in_a_url_is_refused_before_it_is_written_where_all_can_read_it() -> None:
    (refusal,) = refusals(nvidia_driver_repo_url="https://user:secret@mirror.invalid/cuda")

    assert "secret" not in refusal
    assert "auth.conf.d" in refusal
