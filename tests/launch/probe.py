"""Prints what a script can see of its process, as JSON; used to compare a fresh interpreter with a forked one."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path

print(
    json.dumps(
        {
            "name": __name__,
            "file": __file__,
            "main is this module": sys.modules["__main__"].__dict__ is globals(),
            "argv": sys.argv,
            "path[0]": sys.path[0],
            "cwd": str(Path.cwd()),
            "environment": {k: v for k, v in sorted(os.environ.items()) if k != "RANKZERO_IMPORTS"},
            "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())[:3],
            "descriptors beyond": len(list(Path("/proc/self/fd").iterdir())) - 4,
            "stdin": str(Path("/proc/self/fd/0").resolve()),
            "leads its session": os.getsid(0) == os.getpid(),
            "SIGTERM": str(signal.getsignal(signal.SIGTERM)),
            "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "SIGCHLD": str(signal.getsignal(signal.SIGCHLD)),
            "SIGINT": str(signal.getsignal(signal.SIGINT)),
            "collects garbage": gc.isenabled(),
            "threads": threading.active_count(),
            "unbuffered": sys.stdout.write_through,  # type: ignore[union-attr]
        }
    )
)
