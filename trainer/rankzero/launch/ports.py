"""Ports that nobody else takes between the choice and the bind."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from rankzero.contract import FIRST_STORE_PORT, LAST_STORE_PORT
from rankzero.errors import PreflightError

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that can be bound now and that the kernel gives to no outgoing connection.

    The search begins anywhere, so that two groups on one machine do not race for the same one. Raises
    :class:`PreflightError` where there is none.
    """
    highest = min(LAST_STORE_PORT, _first_ephemeral() - 1)
    count = highest - FIRST_STORE_PORT + 1
    begin = secrets.randbelow(count) if count > 0 else 0
    for step in range(count):
        port = FIRST_STORE_PORT + (begin + step) % count
        if is_free(port):
            return port
    raise PreflightError(
        f"no port from {FIRST_STORE_PORT} to {highest} is free",
        hint="net.ipv4.ip_local_port_range should begin above them; see `ss -ltn`",
    )


def is_free(port: int) -> bool:
    """Whether ``port`` can be listened on now, over IPv4 and IPv6."""
    both = socket.has_dualstack_ipv6()
    try:
        socket.create_server(
            ("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both
        ).close()
    except OSError:
        return False
    return True


def _first_ephemeral() -> int:
    try:
        return int(EPHEMERAL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return LAST_STORE_PORT + 1
