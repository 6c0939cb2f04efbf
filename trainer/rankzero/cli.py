"""The ``rankzero`` command."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

import rankzero
from rankzero import contract
from rankzero.errors import InternalError, RankzeroError


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: parse, run, and turn our own errors into a sentence and an exit status."""
    options = parser().parse_args(arguments)
    try:
        status = options.run(options)
    except RankzeroError as error:
        sys.stderr.write(f"rankzero: {error}\n")
        status = error.exit_code
    sys.exit(status)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="rankzero", description=rankzero.__doc__)
    top.add_argument("--version", action="version", version=rankzero.__version__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    launch = commands.add_parser("launch", help="PID 1 of a trainer pod: join the group and run the workers")
    launch.add_argument(
        "--config",
        default=os.environ.get(contract.ENV_CONFIG, contract.CONFIG_PATH),
        help="the run's train.yaml (default: $%s or %s)" % (contract.ENV_CONFIG, contract.CONFIG_PATH),  # noqa: UP031
    )
    launch.set_defaults(run=_launch)

    status = commands.add_parser("status", help="how a run is doing, or how it ended")
    status.add_argument("name", help="the Helm release")
    status.add_argument("-n", "--namespace", default="", help="default: the current context's")
    status.add_argument("-o", "--output", choices=("text", "json"), default="text")
    status.set_defaults(run=_status)
    return top


def _status(options: argparse.Namespace) -> int:
    try:
        from rankzero.cluster import status  # the client library is not in the trainer image
    except ImportError as error:
        raise RankzeroError(
            f"`rankzero status` needs the package {error.name}", hint="pip install 'rankzero[cluster]'"
        ) from error
    return status.show(options.name, options.namespace, as_json=options.output == "json")


def _launch(options: argparse.Namespace) -> int:
    from rankzero.launch import main as launcher  # other commands do not need the launcher
    from rankzero.launch import termination

    try:
        return launcher.launch(options.config)
    except RankzeroError as error:
        termination.leave(str(error))
        raise
    except Exception as error:
        traceback.print_exc()
        told = InternalError(
            f"the launcher failed by a bug of its own: {type(error).__name__}: {error}",
            hint="report it with the traceback in this pod's log; the run goes on when the container starts again",
        )
        termination.leave(str(told))
        raise told from error


if __name__ == "__main__":
    main()
