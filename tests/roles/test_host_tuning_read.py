"""The module that reads a node: from files as the kernel and the role write them, and as Ansible runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from roles.host_tuning.library import host_tuning_read
from scripts import command
from scripts.cache import REPO


def test_a_kernel_value_has_single_spaces_and_a_key_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "net/ipv4").mkdir(parents=True)
    (tmp_path / "net/ipv4/tcp_rmem").write_text("4096\t131072\t6291456\n", encoding="utf-8")

    values = host_tuning_read.read_sysctls(["net.ipv4.tcp_rmem", "net.ipv4.nothing", "net.ipv4"], tmp_path)

    assert values == {"net.ipv4.tcp_rmem": "4096 131072 6291456"}


def test_files_that_are_read_later_at_boot_are_read_as_systemd_does(tmp_path: Path) -> None:
    first, second = tmp_path / "etc", tmp_path / "usr"
    for folder, name, text in [
        (first, "10-early.conf", "a.b = 1\n"),
        (first, "50-own.conf", "a.b = 2\n"),
        (first, "90-mask.conf", ""),
        (second, "90-mask.conf", "a.b = 3\n"),
        (second, "99-late.conf", "# c.d = 0\n;c.d = 0\n-c/d =  4\t5\ne.f=6\n"),
        (second, "99-late.txt", "a.b = 7\n"),
    ]:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    later = host_tuning_read.read_later(first / "50-own.conf", [first, second])

    assert {key: found["value"] for key, found in later.items()} == {"c.d": "4 5", "e.f": "6"}
    assert later["e.f"]["file"] == str(second / "99-late.conf")


def test_one_call_reads_what_was_asked_for_and_what_the_record_adds(tmp_path: Path) -> None:
    record = {"sysctls": {"fs.file-max": {"before": "1", "set": "2"}}}
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")

    (tmp_path / "here.conf").write_text("a = b\n", encoding="utf-8")

    result = run_module(
        {
            "record": str(tmp_path / "record.json"),
            "files": {"sysctl": str(tmp_path / "here.conf"), "modules": str(tmp_path / "nothing.conf")},
            "sysctls": ["fs.nr_open"],
            "congestion_control": "no-such",
        },
        path="/usr/bin:/bin:/usr/sbin:/sbin",
    )

    assert result["record"] == record
    assert result["files"] == {"sysctl": "a = b\n", "modules": ""}
    assert list(result["sysctls"]) == ["fs.file-max", "fs.nr_open"]
    assert "cubic" in result["congestion_controls"]
    assert (result["congestion_module"], result["changed"]) == (False, False)


def run_module(arguments: dict[str, Any], path: str) -> dict[str, Any]:
    """Run the module through Ansible on this machine."""
    output = command.run(
        [
            *(Path(sys.executable).parent / "ansible", "localhost", "--connection", "local", "--one-line"),
            *("--module-path", REPO / "roles/host_tuning/library", "--module-name", "host_tuning_read"),
            *("--args", json.dumps(arguments), "--extra-vars", f"ansible_python_interpreter={sys.executable}"),
        ],
        cwd=REPO,
        env={"PATH": path, "ANSIBLE_MODULE_UTILS": str(REPO / "roles/machine/module_utils")},
    )
    result: dict[str, Any] = json.loads(output.partition("=>")[2])
    return result
