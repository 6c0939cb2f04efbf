"""The port of torch's store (known failure A17)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.errors import PreflightError
from rankzero.launch import ports


def test_it_lies_outside_what_the_kernel_gives_to_outgoing_connections() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert contract.FIRST_STORE_PORT <= ports.free_port() < min(first_ephemeral, 29500)


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch, family: int, host: str) -> None:
    taken = ports.free_port()
    monkeypatch.setattr(ports, "FIRST_STORE_PORT", taken)
    monkeypatch.setattr(ports, "LAST_STORE_PORT", taken + 1)
    with socket.create_server((host, taken), family=family):
        assert {ports.free_port() for _ in range(10)} == {taken + 1}


def test_two_groups_on_one_machine_do_not_begin_with_the_same_port() -> None:
    assert len({ports.free_port() for _ in range(10)}) > 1


def test_a_machine_that_leaves_no_port_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024 65535")
    monkeypatch.setattr(ports, "EPHEMERAL", everything)
    with pytest.raises(PreflightError, match="ip_local_port_range"):
        ports.free_port()
