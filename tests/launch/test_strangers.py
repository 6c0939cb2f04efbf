"""The rendezvous port among strangers: scanners, probes, programs that took it before."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.launch import tally
from rankzero.launch.main import say
from rankzero.launch.one_line import LONGEST
from rankzero.launch.protocol import MAX_LINE, VERSION, Hello, Refused, Welcome, decode, encode
from tests.launch.conftest import MakeGroup
from tests.launch.pods import Pod
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

STRANGERS = 500
MOST_GROWTH = 20 * 2**20
"""Bytes."""
FORGED = "12:00:00 rankzero: the run has succeeded"
HELLO = Hello(
    version=VERSION, run="default/test/main", node_rank=1, pod_name="test-1", pod_uid="new", boot="new", node_name="x",
    config_hash="", code="", last_words="",
)  # fmt: skip
SAID = (
    b"GET / HTTP/1.1\r\n\r\n",
    encode(HELLO)[:50],  # never completed
    b"",
    b"x" * (MAX_LINE - 1024),
    b"x" * (2 * MAX_LINE) + b"\n",
    encode(replace(HELLO, run="somebody/else/run")),
    b"[" * 4000 + b"\n",
    encode(replace(HELLO, pod_name=f"test-1\n{FORGED}")),
)


@pytest.fixture
def strangers() -> Iterator[list[socket.socket]]:
    """Connections that are closed when the test ends."""
    opened: list[socket.socket] = []
    yield opened
    for connection in opened:
        connection.close()


def memory(pod: Pod, field: str) -> int:
    """A size in bytes from the launcher's /proc/PID/status."""
    assert pod.process is not None
    status = Path(f"/proc/{pod.process.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith(field))


def send(connection: socket.socket, said: bytes) -> None:
    """As much of it as the other end takes now."""
    try:
        connection.sendall(said)
    except (TimeoutError, ConnectionError):  # it was dropped at half of a line that is too long
        return


def closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it; whatever it said before is read."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.timeout(300)
def test_500_strangers_at_once_disturb_nobody(make_group: MakeGroup, strangers: list[socket.socket]) -> None:
    group = make_group("wait", heartbeatTimeout=15)
    group.constants["roster.HELLO_TIMEOUT"] = 15
    group.start()
    group.wait_for_workers(1, 2)
    rank0 = group.pods[0]
    before, lines = memory(rank0, "VmRSS"), rank0.output.count("\n")
    assert rank0.process is not None
    Path(f"/proc/{rank0.process.pid}/clear_refs").write_text("5")  # the highest memory use is counted from now on
    port = group.launch["rendezvousPort"]
    for _ in range(STRANGERS):
        strangers.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
    for number, connection in enumerate(strangers):
        send(connection, SAID[number % len(SAID)])

    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as late:
        late.sendall(encode(replace(HELLO, node_rank=7)))
        assert isinstance(decode(late.makefile("rb").readline()), Refused)  # not for its manners: it was heard
    assert not all(map(closed, strangers))  # not only when the strangers are gone

    until(lambda: all(map(closed, strangers)), what="no stranger is left")
    growth = memory(rank0, "VmHWM") - before
    print(f"the launcher grew by {growth / 2**20:.1f} MiB")
    assert growth < MOST_GROWTH
    assert rank0.output.count("\n") - lines <= 6
    assert "dropped a connection from 127.0.0.1" in rank0.output
    assert "Traceback" not in rank0.output
    assert FORGED not in rank0.output.splitlines()
    assert [pod.status()["state"] for pod in group.pods] == ["running", "running"]
    assert group.attempt(1).get("ended") is None
    group.release()
    assert [pod.wait() for pod in group.pods] == [0, 0]
    assert group.attempt(2) == {}
    assert "sent no heartbeat" not in rank0.output + group.pods[1].output


@pytest.mark.timeout(300)
def test_a_new_member_is_taken_in_among_strangers_who_say_nothing(
    make_group: MakeGroup, strangers: list[socket.socket]
) -> None:
    group = make_group("wait")
    group.constants["roster.HELLO_TIMEOUT"] = 60
    group.start()
    group.wait_for_workers(1, 2)
    port = group.launch["rendezvousPort"]
    for _ in range(STRANGERS):
        strangers.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as member:
        member.sendall(encode(HELLO))
        assert isinstance(decode(member.makefile("rb").readline()), Welcome)
        assert not all(map(closed, strangers))  # not only when the strangers are gone
        until(lambda: "joined as node rank 1 from node x" in group.pods[0].output, what="it is known")


def test_a_port_that_another_program_holds_ends_the_pod_and_the_next_start_works(make_group: MakeGroup) -> None:
    """Known failure A17."""
    group = make_group("wait", nodes=1)
    pod = group.pods[0]
    with socket.create_server(("127.0.0.1", group.launch["rendezvousPort"])):
        pod.start(uid="uid-0-1")
        assert pod.wait() == contract.EXIT_PREFLIGHT
    assert f"the rendezvous port {group.launch['rendezvousPort']} cannot be used" in pod.output
    pod.start(uid="uid-0-1")  # the same pod, its container started again
    group.wait_for_workers(1, 1)
    group.release()
    assert pod.wait() == 0


def test_what_strangers_cause_is_counted_and_cannot_forge_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    dropped = tally.Tally("connections dropped", said.append)
    for number in range(100):
        dropped.note(f"dropped {number}\nrankzero: the run has succeeded")
        dropped.tell()
    assert said == [r"dropped 0\nrankzero: the run has succeeded"]
    monkeypatch.setattr(time, "monotonic", lambda clock=time.monotonic: clock() + tally.EVERY)
    dropped.tell()
    assert said[1:] == [r"99 more connections dropped; the last: dropped 99\nrankzero: the run has succeeded"]
    dropped.note("x" * 10_000)
    assert len(said) == 2


def test_the_launcher_says_what_others_wrote_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    say(f"rank 1 ended with status 1: ValueError: x\n{FORGED}\u2028\x1b[2J\ud800 é")
    say("x" * 100_000)
    printed = ""

    def both() -> bool:
        nonlocal printed
        printed += capfd.readouterr().out  # a thread of the launcher prints
        return printed.count("\n") == 2

    until(both, what="both lines")
    first, second = printed.splitlines()
    assert first.endswith(rf"rankzero: rank 1 ended with status 1: ValueError: x\n{FORGED}\u2028\x1b[2J\ud800 é")
    assert len(second) < LONGEST + 100
