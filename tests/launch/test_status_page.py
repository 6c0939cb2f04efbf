"""The pages that every launcher serves, read from real launchers."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rankzero import contract
from rankzero.launch import status
from rankzero.launch.member import RECOVERING_BEATS
from rankzero.launch.status import MOST_REQUESTS, StatusServer
from tests.launch.conftest import MakeGroup
from tests.launch.pods import Pod
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

STRANGERS = 300
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""For SO_LINGER."""


def page(pod: Pod | StatusServer, path: str) -> tuple[int, str]:
    port = pod.status_port if isinstance(pod, Pod) else pod.port
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def is_unready(pod: Pod) -> bool:
    return page(pod, "/readyz")[0] == 503


def metrics(pod: Pod) -> dict[str, float]:
    """Figures by name and labels, as a Prometheus server reads them; none while the page does not answer."""
    _, text = page(pod, "/metrics")
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {f"{s.name}{''.join(f'[{v}]' for v in s.labels.values())}": s.value for s in samples}


def test_a_pod_is_alive_before_it_is_ready(make_group: MakeGroup) -> None:
    """Known failure A12: what is not ready must not be killed, and what waits for its peers is not ready."""
    group = make_group("wait")
    member = group.pods[1].start()
    until(lambda: page(member, "/healthz")[0] == 200, what="the page answers")
    assert page(member, "/readyz")[0] == 503
    group.pods[0].start()
    until(lambda: page(member, "/readyz")[0] == 200, what="the pod has joined")
    group.wait_for_workers(1, 2)
    group.pods[0].delete()
    until(lambda: member.status()["state"] == "waiting", what="rank 0 is missed")
    assert page(member, "/readyz")[0] == 200  # it is not what is missing, and the group recovers
    group.pods[0].start()
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


@pytest.mark.parametrize("missing", [0, 1])
def test_pods_stay_ready_while_their_group_recovers_and_not_while_it_waits_on(
    make_group: MakeGroup, missing: int
) -> None:
    """A drain of their nodes has to wait for the first, and could wait for the second for ever."""
    group = make_group("wait", nodes=3, heartbeatTimeout=3, rank0Timeout=300).start()
    group.wait_for_workers(1, 3)
    others = [pod for pod in group.pods if pod.node_rank != missing]
    began = time.monotonic()
    group.pods[missing].delete()
    for pod in others:
        until(partial(is_unready, pod), what="no eviction is held up any more")
        assert time.monotonic() - began >= RECOVERING_BEATS * 3
        assert page(pod, "/healthz")[0] == 200
    group.pods[missing].start()
    group.wait_for_workers(2, 3)
    until(lambda: all(page(pod, "/readyz")[0] == 200 for pod in group.pods), what="all are ready again")
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0, 0]


def test_pods_that_are_left_when_the_run_has_ended_are_not_ready(make_group: MakeGroup) -> None:
    """They wait for somebody to scale them down; a drain must not wait for that."""
    group = make_group("wait", nodes=1, heartbeatTimeout=2)
    pod = group.pods[0].start(**{contract.ENV_WORKLOAD: "StatefulSet/test"})
    group.wait_for_workers(1, 1)
    assert page(pod, "/readyz")[0] == 200
    group.release()
    until(lambda: pod.status()["outcome"], what="the run has ended")
    until(lambda: page(pod, "/readyz")[0] == 503, what="the pod is not ready")
    pod.terminate()
    assert pod.wait() == contract.EXIT_OK


def test_a_pod_ahead_of_rank_0_in_an_upgrade_is_ready_so_that_the_upgrade_comes_to_rank_0(
    make_group: MakeGroup,
) -> None:
    """Known failure A12: clusters that replace one pod after the other go on when the one before is ready."""
    group = make_group("wait").start()
    group.wait_for_workers(1, 2)
    rank0, member = group.pods
    new = {contract.ENV_CONFIG_HASH: "new"}
    member.delete()
    member.start(**new)
    until(lambda: page(member, "/readyz")[0] == 200, what="the next pod can be replaced")
    assert "its settings differ from those of rank 0: an upgrade is under way" in member.status()["waiting_for"]
    rank0.delete()
    rank0.start(**new)
    group.wait_for_workers(2, 2)
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


def test_figures_of_a_run_that_trains(make_group: MakeGroup) -> None:
    group = make_group("step", procs=2).start()
    until(lambda: metrics(group.pods[0]).get("rankzero_step", 0) > 3, what="a few steps")
    until(lambda: "rankzero_rank_step[3]" in metrics(group.pods[0]), what="the other pod's ranks")
    seen = metrics(group.pods[0])
    assert seen["rankzero_joined"] == 1
    assert seen["rankzero_attempt"] == 1
    assert seen["rankzero_total_steps"] == 1000
    assert 0 < seen["rankzero_loss"] < 1
    assert 0.02 <= seen["rankzero_step_seconds"] < 60
    assert {f"rankzero_rank_step[{rank}]" for rank in range(4)} <= seen.keys()
    assert "rankzero_step" not in metrics(group.pods[1])
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


def test_the_rank_that_the_others_wait_for_is_named(make_group: MakeGroup) -> None:
    """All have the same step time; what a rank needs without the wait for others tells them apart."""
    group = make_group("lag", "2", procs=2).start()
    own = [f"rankzero_rank_own_seconds[{rank}]" for rank in range(4)]
    until(lambda: metrics(group.pods[0]).keys() >= {*own}, what="all ranks' own part of a step")
    until(lambda: metrics(group.pods[0]).get(own[2], 0) >= 0.02, what="a few steps")
    slowest = group.pods[0].status()["group"]["slowest"]
    assert slowest["rank"] == 2
    assert slowest["said"].startswith("rank 2 needs ")
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]


def test_attempts_are_counted_by_cause_with_the_time_they_cost(make_group: MakeGroup) -> None:
    group = make_group("fail", "1", "1", "1").start()
    group.wait_for_workers(2, 2)
    seen = metrics(group.pods[0])
    assert seen["rankzero_attempts_total[worker]"] == 1
    assert seen["rankzero_lost_seconds[worker]"] > 0
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.outcome()["time_s"].keys() >= {"training", "lost work", "waiting for pods", "stalled"}
    assert "goodput" in group.pods[0].output


@pytest.mark.parametrize("path", ["/", "/status/x", "/metrics2"])
def test_another_path_names_those_that_exist(make_group: MakeGroup, path: str) -> None:
    pod = make_group("wait", nodes=1).start().pods[0]
    until(lambda: page(pod, "/healthz")[0] == 200, what="the page answers")
    assert page(pod, path) == (404, '{"paths": ["/healthz", "/readyz", "/status", "/metrics"]}\n')


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusServer]:
    """A page of this process."""
    monkeypatch.setattr(status, "REQUEST_WITHIN", 10.0)
    served = StatusServer(0, dict, lambda: True)
    served.start()
    yield served
    served._server.shutdown()
    served._server.server_close()


def requests() -> int:
    """Threads that serve one now."""
    return sum("process_request" in thread.name for thread in threading.enumerate())


def test_clients_that_ask_nothing_neither_fill_the_launcher_nor_keep_probes_out(server: StatusServer) -> None:
    with contextlib.ExitStack() as strangers:
        for _ in range(STRANGERS):
            strangers.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
        assert page(server, "/healthz")[0] == 200
        # Not only when the silent ones are gone; those that make room are still ending.
        assert 0 < requests() <= 2 * MOST_REQUESTS
        until(lambda: requests() == 0, what="the silent ones are dropped")
    assert page(server, "/readyz")[0] == 200


def test_a_client_that_hangs_up_leaves_no_traceback(server: StatusServer, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            stranger.sendall(b"GET /status HTTP/1.0\r\n")  # half of it: the other end waits for more
    assert page(server, "/healthz")[0] == 200
    until(lambda: requests() == 0, what="all are served")
    assert capfd.readouterr().err == ""
