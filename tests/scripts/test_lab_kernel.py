"""What nodes change in this machine's kernel is put back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scripts.cache import REPO
from scripts.lab import kernel


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Path]:
    """A kernel's files with three of the settings, in the place of this machine's."""
    values = {"kernel.panic": "1", "vm.overcommit_memory": "0", "fs.file-max": "1000", "kernel.random.boot_id": "first"}
    files = {name: tmp_path.joinpath("sys", *name.split(".")) for name in values}
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{values[name]}\n", encoding="ascii")
    monkeypatch.setattr(kernel, "PROC_SYS", tmp_path / "sys")
    monkeypatch.setenv("RANKZERO_CACHE", str(tmp_path / "cache"))
    return files


def text(file: Path) -> str:
    return file.read_text(encoding="ascii").strip()


def test_what_the_nodes_changed_is_put_back(settings: dict[str, Path]) -> None:
    kernel.keep()
    settings["kernel.panic"].write_text("10\n", encoding="ascii")
    settings["fs.file-max"].write_text("2000\n", encoding="ascii")
    assert kernel.put_back() == []
    assert (text(settings["kernel.panic"]), text(settings["fs.file-max"])) == ("1", "1000")


def test_a_repair_of_the_cluster_does_not_take_the_nodes_values_for_the_machines(settings: dict[str, Path]) -> None:
    kernel.keep()
    settings["kernel.panic"].write_text("10\n", encoding="ascii")
    kernel.keep()
    kernel.put_back()
    assert text(settings["kernel.panic"]) == "1"


def test_after_a_reboot_the_values_of_the_last_boot_are_not_put_back(settings: dict[str, Path]) -> None:
    kernel.keep()
    settings["kernel.random.boot_id"].write_text("second\n", encoding="ascii")
    settings["kernel.panic"].write_text("5\n", encoding="ascii")
    assert kernel.put_back() == []
    assert text(settings["kernel.panic"]) == "5"
    kernel.keep()
    settings["kernel.panic"].write_text("10\n", encoding="ascii")
    kernel.put_back()
    assert text(settings["kernel.panic"]) == "5"


def test_without_a_record_nothing_is_changed(settings: dict[str, Path]) -> None:
    assert kernel.put_back() == []
    assert text(settings["kernel.panic"]) == "1"


def test_a_value_that_the_kernel_refuses_is_named_and_the_others_are_put_back(settings: dict[str, Path]) -> None:
    # As a setting that only the machine's own kernel had when it was written down.
    (line,) = kernel.write({"kernel.keys.root_maxkeys": "200", "vm.overcommit_memory": "2"})
    assert line.startswith("kernel.keys.root_maxkeys = 200 (")
    assert text(settings["vm.overcommit_memory"]) == "2"


def test_settings_hold_only_during_the_body_even_if_it_fails(settings: dict[str, Path]) -> None:
    def fails() -> None:
        with kernel.unchanged():
            settings["kernel.panic"].write_text("10\n", encoding="ascii")
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        fails()
    assert text(settings["kernel.panic"]) == "1"


def test_every_setting_that_the_playbook_gives_to_the_whole_machine_is_put_back() -> None:
    """Settings below net. belong to the node's own network namespace."""
    variables = yaml.safe_load((REPO / "roles/host_tuning/vars/main/sysctls.yml").read_text(encoding="utf-8"))
    keys = {entry["key"] for value in variables.values() if isinstance(value, list) for entry in value}
    machine_wide = {key for key in keys if not key.startswith("net.")}
    assert "fs.file-max" in machine_wide
    assert machine_wide <= set(kernel.CHANGED_BY_NODES)
