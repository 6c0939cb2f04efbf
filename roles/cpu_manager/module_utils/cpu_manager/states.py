"""The kubelet's state files, for the modules of the role cpu_manager."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils.machine.records import read_text


def policy(path: Path) -> str | None:
    """The policy that the kubelet has noted in a state file; a damaged file, which it refuses too, counts as none."""
    found = re.search(r'"policyName":"([^"]*)"', read_text(path) or "")
    return found[1] if found else None
