"""What the role machine reads, on the files of seven machines as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from roles.machine.module_utils.machine import facts, programs, smi
from roles.machine.module_utils.machine.programs import Answer
from tests.roles import machine_tree
from tests.roles.templating import load

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.yml"))
EVERY_SAMPLE = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
OF_THE_TEST_MACHINE = ("disks", "clock_synchronized")
"""Facts that come from system calls instead of files."""
OF_THE_RUN = ("check_mode",)
"""Facts that the module adds to those of the node."""


def test_there_are_machines_of_all_shapes() -> None:
    assert [sample.stem for sample in SAMPLES] == [
        *("dgx-h100", "epyc-nps4", "grace", "no-gpu", "one-socket", "smt-off", "vm"),
    ]


@EVERY_SAMPLE
def test_a_machine_s_files_and_programs_tell_its_facts(sample: Path, tmp_path: Path) -> None:
    wanted = load(sample)
    machine_tree.write(wanted, tmp_path)

    read = facts.read(tmp_path, uname(wanted), answers(wanted, tmp_path))

    assert [*read, *OF_THE_RUN] == list(wanted)
    for name in (name for name in read if name not in OF_THE_TEST_MACHINE):
        assert read[name] == wanted[name], name


def test_a_machine_without_anything_has_every_fact_all_the_same(tmp_path: Path) -> None:
    nothing = dict.fromkeys(facts.ask(tmp_path, 5), Answer(None, "", "not there"))

    read = facts.read(tmp_path, os.uname(), nothing)

    assert [*read, *OF_THE_RUN] == list(load(SAMPLES[0]))
    assert (read["gpus"], read["nics"], read["driver"]["loaded"], read["smi"]) == ([], [], None, None)
    assert read["kubernetes"]["distribution"] == read["runtime"]["kind"] == "none"


def uname(wanted: dict[str, Any]) -> os.uname_result:
    """What uname says on the machine."""
    return os.uname_result(("Linux", wanted["hostname"], wanted["kernel"]["release"], "", wanted["kernel"]["arch"]))


def answers(wanted: dict[str, Any], root: Path) -> dict[str, Answer]:
    """What the programs on the machine say; nvidia-smi is a program indeed."""
    kubernetes, runtime = wanted["kubernetes"], wanted["runtime"]
    states = {name: (unit["loaded"], unit["active"]) for name, unit in wanted["services"].items()}
    for name, state in (
        ("nvidia-persistenced", wanted["driver"]["persistenced"]),
        ("nvidia-fabricmanager", wanted["driver"]["fabricmanager"]["state"]),
    ):
        states[name] = (state != "absent", state == "active")
    units = "\n\n".join(
        f"MainPID={7 if active else 0}\nId={name}.service\nLoadState={'loaded' if loaded else 'not-found'}\n"
        f"ActiveState={'active' if active else 'inactive'}"
        for name, (loaded, active) in states.items()
    )
    if kubernetes["fail_cgroup_v1"] is not None:
        machine_tree.put(root / "proc/7/cmdline", "/usr/bin/kubelet\0--config=/var/lib/kubelet/config.yaml\0")
        machine_tree.put(
            root / "var/lib/kubelet/config.yaml", f"failCgroupV1: {str(kubernetes['fail_cgroup_v1']).lower()}\n"
        )
    program = {"kubeadm": "kubelet"}.get(kubernetes["distribution"], kubernetes["distribution"])
    bundled = kubernetes["distribution"] in ("k3s", "rke2")
    smi_program = str(root / "bin/nvidia-smi")
    commands = {key: [smi_program, *words[1:]] for key, words in {**smi.QUESTION, **smi.DETAILS}.items()}
    said = {
        "addresses": machine_tree.addresses(wanted),
        "container": wanted["container"] or "none",
        "virtual_machine": wanted["virtual_machine"] or "none",
        "units": units,
        "dpkg": "".join(f"ii |{name}|{version}\n" for name, version in wanted["driver"]["packages"].items()),
        "rpm": "",
        program: f"{program} {kubernetes['version']} (abc)",
        f"{program}_containerd" if bundled else "containerd": f"containerd github.com/x/y v{runtime['version']} abc",
    }
    return {
        **{key: Answer(0, text, "") for key, text in said.items()},
        **{
            key: answer._replace(problem=answer.problem.replace(smi_program, "nvidia-smi"))
            for key, answer in programs.run(commands, 5).items()
        },
    }
