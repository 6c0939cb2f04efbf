"""The script in docs/parallel.md does what the guide says: it runs, and the values choose the form."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankzero import contract
from tests.launch.pods import REPO

[SCRIPT] = re.findall(r"```python\n(.*?)```", (REPO / "docs/parallel.md").read_text(encoding="utf-8"), re.DOTALL)


def loss_of(folder: Path, start: list[str], parallel: dict[str, str]) -> float:
    """What the script of the guide prints with these settings."""
    (folder / "train.py").write_text(SCRIPT)
    settings = {"nodes": 8, "resources": {"gpus": 8}, "train": {"batchSize": 8, "parallel": parallel}}  # a values file
    (folder / "train.yaml").write_text(yaml.safe_dump(settings))
    more = {contract.ENV_CONFIG: str(folder / "train.yaml"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *start, folder / "train.py"],
        env={**os.environ, **more, "PYTHONPATH": str(REPO / "trainer")},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [loss] = re.findall(r"^loss ([0-9.]+), norm of the gradient [0-9.]+$", done.stdout, re.MULTILINE)
    return float(loss)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_script_of_the_guide_learns_the_same_replicated_and_sharded(tmp_path: Path) -> None:
    """Four decimals are printed, and sums of two numbers are the same in any order."""
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    losses = [loss_of(tmp_path, torchrun, {"strategy": strategy}) for strategy in ("ddp", "fsdp")]
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)
