"""The network interface that collectives should use: the one that owns this pod's address towards rank 0.

NCCL and gloo otherwise guess by name and may take lo, docker0 or a storage network.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

SIOCGIFADDR = 0x8915


def source_address(towards: str) -> str:
    """The local address that the kernel's routing table picks for packets to ``towards``."""
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, 9))  # UDP: no packet is sent
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str:
    """The interface that owns ``address``; empty where none does."""
    wanted = ipaddress.ip_address(address)
    if wanted.version == 6:
        return _ipv6_interfaces().get(wanted, "")
    return next((name for _, name in socket.if_nameindex() if _ipv4_address(name) == wanted), "")


def _ipv4_address(name: str) -> ipaddress.IPv4Address | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:  # an interface without an IPv4 address
            return None
    return ipaddress.IPv4Address(answer[20:24])


def _ipv6_interfaces() -> dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    table = Path("/proc/net/if_inet6")
    lines = table.read_text(encoding="ascii").splitlines() if table.exists() else []
    return {ipaddress.IPv6Address(int(line.split()[0], 16)): line.split()[5] for line in lines}
