"""The modules of cpu_manager on files and answers as the kubelet, systemd, K3s and the API server write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.cpu_manager.library import cpu_manager_read, cpu_manager_ready, cpu_manager_switch


def test_options_of_a_command_line_are_read_in_both_spellings() -> None:
    words = ["/usr/bin/kubelet", "--config=/a", "--config-dir", "/b", "--runonce", "--v=2", ""]

    assert cpu_manager_read.options(words) == {"config": "/a", "config-dir": "/b", "runonce": "true", "v": "2"}


def test_the_unit_s_variables_are_read_as_systemd_quotes_them() -> None:
    shown = '"KUBELET_CONFIG_ARGS=--config=/a --config-dir=/b" PLAIN=1'

    assert cpu_manager_read.environment(shown) == {"KUBELET_CONFIG_ARGS": "--config=/a --config-dir=/b", "PLAIN": "1"}
    assert cpu_manager_read.environment("") == {}


def test_what_k3s_passes_to_its_kubelet_is_read_from_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.yaml.d").mkdir()
    (tmp_path / "config.yaml").write_text(
        'token: a=b\nkubelet-arg:\n  - "cpu-manager-policy=none"\n  - v=2\nnode-label:\n  - rack=1\n', encoding="utf-8"
    )
    (tmp_path / "config.yaml.d/90.yaml").write_text("kubelet-arg+: config-dir=/d\n", encoding="utf-8")

    found = cpu_manager_read.passed_on(tmp_path)

    assert found | {"cpu-manager-policy": "none", "v": "2", "config-dir": "/d"} == found
    assert "token" not in found


def test_a_node_without_k3s_s_files_passes_nothing_on(tmp_path: Path) -> None:
    assert cpu_manager_read.passed_on(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("content", "policy"),
    [
        ('{"policyName":"static","defaultCpuSet":"0-1","checksum":1}', "static"),
        ("", None),
        ('{"policyNa', None),
        (None, None),
    ],
    ids=["static", "empty", "damaged", "absent"],
)
def test_the_policy_is_what_the_state_file_says(tmp_path: Path, content: str | None, policy: str | None) -> None:
    file = tmp_path / "cpu_manager_state"
    if content is not None:
        file.write_text(content, encoding="utf-8")

    assert cpu_manager_read.policy(file) == policy


def test_a_damaged_record_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"files": [', encoding="utf-8")

    with pytest.raises(ValueError, match=r"record\.json is not JSON .* Remove it"):
        cpu_manager_read.read_json(tmp_path / "record.json")


def test_the_newest_file_counts_and_absent_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    assert cpu_manager_read.newest([tmp_path / "a", tmp_path / "b"]) == int((tmp_path / "a").stat().st_mtime)
    assert cpu_manager_read.newest([]) == 0


def test_files_are_written_with_their_folders_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "new/sub/file.conf"

    cpu_manager_switch.put({str(file): "text\n", str(tmp_path / "absent"): None})
    assert file.read_text(encoding="utf-8") == "text\n"
    assert [path.name for path in file.parent.iterdir()] == ["file.conf"]

    cpu_manager_switch.put({str(file): None})
    assert not file.exists()


STATE = 'E1129 21:00:01.000002    77 kubelet.go:1] "Failed to start ContainerManager" err="could not restore state"'
COMMAND = 'E1129 21:00:01.000001    77 run.go:74] "command failed" err="failed to load kubelet config file"'
OTHER = 'E1129 21:00:01.000003    77 log.go:1] "Failed to list volumes" err="none"'
PLAIN = "I1129 21:00:00.000000    77 server.go:1] Started"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([PLAIN, COMMAND, OTHER], '"command failed" err="failed to load kubelet config file"'),
        ([STATE, OTHER], '"Failed to start ContainerManager" err="could not restore state"'),
        ([PLAIN, OTHER], '"Failed to list volumes" err="none"'),
        ([PLAIN, "Error: unknown flag: --x", PLAIN], "Error: unknown flag: --x"),
        ([PLAIN], "Started"),
        ([], "it wrote nothing to its journal"),
    ],
    ids=["command", "manager", "other", "flag", "no error", "nothing"],
)
def test_a_kubelet_that_does_not_start_is_quoted(lines: list[str], words: str) -> None:
    assert cpu_manager_switch.complaint("\n".join(lines)) == words


def condition(status: str = "True", heartbeat: str = "2026-01-01T00:00:10Z") -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": status,
        "lastHeartbeatTime": heartbeat,
        "reason": "KubeletNotReady",
        "message": "no network",
    }


EPOCH = 1767225600
"""2026-01-01T00:00:00Z."""


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([condition()], ""),
        ([condition("False")], "KubeletNotReady: no network"),
        ([condition(heartbeat="2025-12-31T23:59:59Z")], "has not reported yet"),
        ([], "no condition Ready"),
    ],
    ids=["ready", "not ready", "earlier kubelet", "nothing"],
)
def test_a_node_is_ready_when_its_new_kubelet_says_so(conditions: list[Any], words: str) -> None:
    why = cpu_manager_ready.readiness(conditions, EPOCH)

    assert words in why
    assert bool(words) == bool(why)
