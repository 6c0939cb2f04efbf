"""Networks of their own for pods: other addresses and another /etc/hosts than this machine's."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def network(folder: Path, setup: str, hosts: str) -> Iterator[list[str]]:
    """A network that ``setup`` (shell lines with ``ip``) makes; yields what starts a command in it.

    Skips the test where this user may not make one.
    """
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        pytest.skip("unshare, nsenter (util-linux) and ip (iproute2) are needed")
    file = folder / "hosts"
    file.write_text(hosts)
    script = f"set -e\nip link set lo up\n{setup}\nmount --bind {file} /etc/hosts\necho ready\nexec sleep infinity"
    command = ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stderr is not None
            if not holder.stdout.readline():
                pytest.skip(f"no network of its own: {holder.stderr.read().strip()}")
            yield [
                "nsenter", f"--target={holder.pid}", "--user", "--preserve-credentials", "--net", "--mount",
                f"--wdns={Path.cwd()}",
            ]  # fmt: skip
        finally:
            holder.kill()
