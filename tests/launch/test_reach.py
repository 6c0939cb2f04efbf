"""Waiting for rank 0 names the missing link (known failures A1, A3, A20)."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest

from rankzero.errors import Rank0UnreachableError
from rankzero.launch import reach
from rankzero.launch.ports import free_port
from tests.launch.pods import REPO


def wait_for(host: str, port: int, timeout: float) -> list[str]:
    said: list[str] = []
    with pytest.raises(Rank0UnreachableError) as caught:
        asyncio.run(reach.connect(host, port, timeout=timeout, say=said.append))
    return [*said, str(caught.value)]


def test_what_runs_in_a_pod_names_no_cluster_domain() -> None:
    """Names are resolved through the pod's search path, so any domain will do."""
    sources = [*(REPO / "trainer/rankzero").rglob("*.py"), *(REPO / "charts/rankzero/templates").iterdir()]
    assert len(sources) > 50
    assert [str(path) for path in sources if re.search(r"\.svc\b|cluster\.local", path.read_text())] == []


def test_an_ipv6_address_stands_in_brackets() -> None:
    port = free_port()
    assert f"[::1]:{port} refuses" in wait_for("::1", port, timeout=0.3)[0]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (socket.EAI_NONAME, "DNS: train-0.train does not resolve yet"),
        (socket.EAI_AGAIN, "DNS: the server does not answer for train-0.train; a NetworkPolicy that forbids DNS"),
    ],
)
def test_a_name_that_does_not_resolve_is_told_apart(monkeypatch: pytest.MonkeyPatch, error: int, sentence: str) -> None:
    """The resolver is a mock: which of the two a machine says, and how soon, depends on where it stands."""

    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(error, "as the resolver says")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    said = wait_for("train-0.train", 1, timeout=0.3)
    assert sentence in said[0]
    assert "rank 0 was not reached within 0.3 s" in said[-1]
    assert "launch.rank0Timeout" in said[-1]


def test_a_port_where_nobody_listens_is_told_apart() -> None:
    said = wait_for("localhost", free_port(), timeout=0.3)
    assert "refuses; the pod is there, its launcher does not listen yet" in said[0]


def test_an_address_that_swallows_packets_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "CONNECT_TIMEOUT", 0.2)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # A full accept queue drops further handshakes, as a policy that drops packets does.
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            said = wait_for("127.0.0.1", full.getsockname()[1], timeout=0.5)
        finally:
            for filler in fillers:
                filler.close()
    assert "does not answer; a NetworkPolicy" in said[0]


def test_the_same_reason_is_not_repeated_at_every_try() -> None:
    assert len(wait_for("localhost", free_port(), timeout=3.0)) == 2


def test_it_goes_through_as_soon_as_somebody_listens() -> None:
    async def scenario() -> int:
        port = free_port()
        waiting = asyncio.create_task(reach.connect("localhost", port, timeout=60, say=lambda _: heard.set()))
        heard = asyncio.Event()
        await heard.wait()
        server = await asyncio.start_server(lambda _, writer: writer.close(), "localhost", port)
        _, writer = await waiting
        writer.close()
        server.close()
        return port

    assert asyncio.run(scenario()) > 0
