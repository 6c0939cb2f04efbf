"""How every command of ours ends: an exit status, and an error as a sentence with its fix."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rankzero.errors import RankzeroError
from scripts.cache import CacheFolderError

INTERRUPTED = 130
"""128 + SIGINT, as the shell counts."""


def guarded(command: Callable[[], int]) -> int:
    """Run ``command`` and return its status; our own errors and Ctrl-C do not become tracebacks."""
    try:
        return command()
    except RankzeroError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except CacheFolderError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; the same command goes on from here\n")
        return INTERRUPTED
