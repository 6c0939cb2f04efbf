"""The end of a training script: an error of ours is a sentence and its exit status, so that it is judged rightly."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rankzero.errors import RankzeroError


def run(main: Callable[[], None]) -> None:
    """Call ``main``; every rank does so.

    A :class:`RankzeroError` ends the process with its ``exit_code``: the launcher does not try again what ended
    with that of a wrong setting. Any other exception stays a traceback with status 1.
    """
    try:
        main()
    except RankzeroError as error:
        # The class comes first: launchers take the last line with "Error" in it for the reason.
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(error.exit_code)
