"""The examples as programs of this machine, as a person starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.launch.pods import REPO

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def losses_of(*arguments: str, **environment: str) -> list[float]:
    """Run ``python`` with these arguments to its good end; the losses that its log tells, in their order."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO / "trainer"), **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [float(number) for number in re.findall(r"^step .* loss ([0-9.]+)", done.stdout, re.MULTILINE)]
