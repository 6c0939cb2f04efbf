"""The modules of cpu_manager on files and answers as the kubelet, systemd, K3s and the API server write them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from roles.cpu_manager.library import cpu_manager_read, cpu_manager_ready, cpu_manager_switch
from roles.cpu_manager.module_utils.cpu_manager import states
from roles.machine.module_utils.machine.records import read_record


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

    found = cpu_manager_read.passed_on(
        tmp_path, "/usr/local/bin/k3s agent --kubelet-arg max-pods=9 --kubelet-arg=reserved-cpus=0"
    )

    assert found == {
        "cpu-manager-policy": "none",
        "v": "2",
        "config-dir": "/d",
        "max-pods": "9",
        "reserved-cpus": "0",
    }


def test_a_list_in_brackets_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("kubelet-arg: [v=2, 'reserved-cpus=0']\ntls-san: [a=b]\n", encoding="utf-8")

    assert cpu_manager_read.passed_on(tmp_path, "") == {"v": "2", "reserved-cpus": "0"}


def test_the_unit_s_command_line_is_read_as_systemd_prints_it() -> None:
    shown = "{ path=/bin/k3s ; argv[]=/bin/k3s agent --kubelet-arg=v=2 ; ignore_errors=no ; start_time=[n/a] }"

    assert cpu_manager_read.command_of(shown) == "/bin/k3s agent --kubelet-arg=v=2"
    assert cpu_manager_read.command_of("") == ""


@pytest.mark.parametrize(
    ("given", "configurations", "url"),
    [
        ({}, [], "http://127.0.0.1:10248/healthz"),
        ({}, ["healthzPort: 10300\n", "healthzBindAddress: 0.0.0.0\n"], "http://127.0.0.1:10300/healthz"),
        ({"healthz-port": "7"}, ["healthzPort: 10300\n"], "http://127.0.0.1:7/healthz"),
        ({}, ["healthzPort: 0\n"], ""),
    ],
)
def test_health_is_asked_for_where_the_kubelet_was_told_to_say_it(
    given: dict[str, str], configurations: list[str], url: str
) -> None:
    assert cpu_manager_read.health_url(given, configurations) == url


def test_a_node_without_k3s_s_files_passes_nothing_on(tmp_path: Path) -> None:
    assert cpu_manager_read.passed_on(tmp_path / "none", "") == {}


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

    assert states.policy(file) == policy


def test_a_damaged_record_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"files": [', encoding="utf-8")

    with pytest.raises(ValueError, match=r"record\.json is not JSON .* Remove it"):
        read_record(tmp_path / "record.json")


def test_files_are_written_with_their_folders_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "new/sub/file.conf"

    cpu_manager_switch.put({str(file): "text\n", str(tmp_path / "absent"): None})
    assert file.read_text(encoding="utf-8") == "text\n"
    assert [path.name for path in file.parent.iterdir()] == ["file.conf"]

    cpu_manager_switch.put({str(file): None})
    assert not file.exists()


class Node:
    """Mock of the module and of systemd: ``start`` fails so many times. Real ones are in molecule/cpu_manager."""

    def __init__(self, folder: Path, health_url: str, failures: int) -> None:
        self.file, self.state, self.record = folder / "99.conf", folder / "cpu_manager_state", folder / "record.json"
        self.state.write_text('{"policyName":"none"}', encoding="utf-8")
        self.failures, self.said = failures, list[str]()
        self.params = {
            "service": "kubelet",
            "files": {str(self.file): "new\n"},
            "record": str(self.record),
            "record_text": "{}",
            "states": {str(self.state): None},
            "policies": {str(self.state): "static"},
            "health_url": health_url,
            "timeout": 5,
        }

    def run_command(self, words: list[str], **_: Any) -> tuple[int, str, str]:
        self.said.append(words[1])
        if words[1] == "start":
            self.failures -= 1
            return (1, "", "Unit is masked") if self.failures >= 0 else (0, "", "")
        return (0, "ActiveState=active\nNRestarts=0\n", "")

    def fail_json(self, msg: str) -> None:
        raise RuntimeError(msg)


@pytest.fixture
def health() -> Iterator[str]:
    """A healthy kubelet's answer."""

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/healthz"
    server.shutdown()
    server.server_close()


def test_a_service_that_systemd_does_not_start_gets_its_files_back_and_is_started_again(
    tmp_path: Path, health: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy is for other machines.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    node = Node(tmp_path, health, failures=1)

    found = cpu_manager_switch.switch(node)

    assert (found["ok"], found["restored"]) == (False, True)
    assert "Unit is masked" in found["error"]
    assert node.said[-1] == "start"
    assert not node.file.exists()
    assert not node.record.exists()
    assert node.state.read_text(encoding="utf-8") == '{"policyName":"none"}'
    assert node.state.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_found_before_the_service_is_stopped(tmp_path: Path) -> None:
    node = Node(tmp_path, "", failures=0)
    node.params["files"] = {str(node.state / "below/a/file"): "new\n"}

    with pytest.raises(RuntimeError, match="the kubelet was not stopped"):
        cpu_manager_switch.switch(node)
    assert node.said == []


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


class Asked:
    """Mock of the API's client: each question takes the next answer. A real one cannot be made to fail in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def _next(self, *_: Any, **__: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(data=json.dumps(answer))

    read_node = connect_get_node_proxy_with_path = _next


NODE = {"status": {"conditions": [condition()]}}


def test_a_tunnel_to_the_kubelet_that_is_not_up_yet_is_no_refusal() -> None:
    """As K3s answers for seconds after a restart of its agent."""
    found = cpu_manager_ready.ask(Asked(NODE, client.ApiException(status=502, reason="Bad Gateway")), "n", EPOCH)

    assert (found["ready"], found["denied"]) == (False, False)
    assert "502" in found["why"]


def test_a_missing_right_is_told_at_once() -> None:
    found = cpu_manager_ready.ask(Asked(NODE, client.ApiException(status=403, reason="Forbidden")), "n", EPOCH)

    assert found["denied"]


def test_a_ready_node_tells_its_kubelet_s_configuration() -> None:
    found = cpu_manager_ready.ask(Asked(NODE, {"kubeletconfig": {"maxPods": 1}}), "n", EPOCH)

    assert (found["ready"], found["config"]) == (True, {"maxPods": 1})
