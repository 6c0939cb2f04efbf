"""The port of torch's store (known failure A17)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rankzero.errors import PreflightError
from rankzero.launch import ports


def test_it_lies_outside_what_the_kernel_gives_to_outgoing_connections() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert ports.LOWEST <= ports.free_port(1) < min(first_ephemeral, 29500)


def test_a_taken_port_is_passed_over_and_attempts_begin_elsewhere() -> None:
    port = ports.free_port(1)
    with socket.create_server(("", port)):
        assert ports.free_port(1) != port
    assert ports.free_port(2) != port


def test_a_machine_that_leaves_no_port_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024 65535")
    monkeypatch.setattr(ports, "EPHEMERAL", everything)
    with pytest.raises(PreflightError, match="ip_local_port_range"):
        ports.free_port(1)
