"""The end of a training script: an error of ours is a sentence and its exit status, so that it is judged rightly."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rankzero import config as settings
from rankzero import contract
from rankzero.config import TrainConfig
from rankzero.errors import RankzeroError


def train_config(default: TrainConfig | None = None) -> TrainConfig:
    """The ``train:`` part of the file that $RANKZERO_CONFIG names, in a pod the run's train.yaml; else ``default``.

    Raises :class:`ConfigError` where there is one that cannot be read or is wrong.
    """
    path = os.environ.get(contract.ENV_CONFIG)
    return settings.load_train(path) if path else default or TrainConfig()


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
