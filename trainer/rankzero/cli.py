"""The ``rankzero`` command."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import rankzero
from rankzero import contract
from rankzero.errors import ConfigError, InternalError, RankzeroError
from rankzero.train.data.pack import command

UPGRADE_OPTIONS = {"--values": ["-f"], "--set": [], "--set-string": [], "--set-json": [], "--set-file": []}
"""Options of `helm upgrade` that `rankzero diff` passes on, with their short forms."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: parse, run, and turn our own errors into a sentence and an exit status."""
    options = parser().parse_args(arguments)
    try:
        status = options.run(options)
    except RankzeroError as error:
        sys.stderr.write(f"rankzero: {error}\n")
        status = error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("\nrankzero: interrupted\n")
        status = 128 + signal.SIGINT
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

    fetch = commands.add_parser("fetch-code", help="have one revision of a git repository in a folder")
    fetch.add_argument("repository", help="its URL")
    fetch.add_argument("revision", help="a full commit hash, or a tag")
    fetch.add_argument("folder", type=Path)
    fetch.add_argument(
        "--credentials",
        type=Path,
        default=contract.CODE_CREDENTIALS_PATH,
        help="a mounted Secret with username and password, or ssh-privatekey and known_hosts (default: %(default)s)",
    )
    fetch.set_defaults(run=_fetch)

    pack = commands.add_parser("pack", help="turn images, JSON lines, text or tokens into shards to train from")
    command.add_arguments(pack)
    pack.set_defaults(run=command.run)

    export = commands.add_parser("export", help="the weights of a checkpoint as one safetensors file")
    export.add_argument(
        "checkpoint", type=Path, help="its folder, or the state directory of a run: its newest good one"
    )
    export.add_argument("output", type=Path, help="the file to write, which ends in .safetensors")
    export.add_argument("--part", default="model", help="as what the script tracks the module (default: %(default)s)")
    export.set_defaults(run=_export)

    status = commands.add_parser("status", help="how a run is doing, or how it ended")
    status.add_argument("name", help="the Helm release")
    status.add_argument("-n", "--namespace", default="", help="default: the current context's")
    status.add_argument("-o", "--output", choices=("text", "json"), default="text")
    status.set_defaults(run=_status)

    diff = commands.add_parser(
        "diff",
        help="what differs between two releases, or what an upgrade would change",
        epilog=f"Exit status: {contract.EXIT_OK} nothing differs, {contract.EXIT_DIFFERENT} something does, "
        f"{contract.EXIT_NOT_BY_UPGRADE} an upgrade would be refused, ignored or delete checkpoints, else an error.",
    )
    diff.add_argument("first", metavar="RELEASE", help="RELEASE or RELEASE@REVISION")
    diff.add_argument("second", nargs="?", default="", help="another one; without it, the upgrade of the first")
    diff.add_argument("-n", "--namespace", default="", help="default: the current context's")
    diff.add_argument("-o", "--output", choices=("text", "json"), default="text")
    upgrade = diff.add_argument_group("the upgrade", "as you would hand it to `helm upgrade`")
    upgrade.add_argument("--chart", default="charts/rankzero", help="default: %(default)s")
    for option, short in UPGRADE_OPTIONS.items():
        upgrade.add_argument(*short, option, action="append", default=[], metavar="VALUES")
    upgrade.add_argument("--reset-then-reuse-values", action="store_true")
    diff.set_defaults(run=_diff)
    return top


def _fetch(options: argparse.Namespace) -> int:
    from rankzero import fetch

    # As PID 1 of its container it would be deaf to the signal without a handler.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    commit = fetch.fetch(options.repository, options.revision, options.folder, options.credentials)
    print(f"rankzero: {options.revision} of {options.repository} is commit {commit}", flush=True)  # noqa: T201
    return contract.EXIT_OK


def _export(options: argparse.Namespace) -> int:
    try:
        from rankzero.train.checkpoint.export import export
    except ImportError as error:
        raise RankzeroError(
            f"`rankzero export` needs the package {error.name}", hint="pip install 'rankzero[train]' torch"
        ) from error
    print(export(options.checkpoint, options.output, options.part), flush=True)  # noqa: T201
    return contract.EXIT_OK


def _diff(options: argparse.Namespace) -> int:
    given = [f"{option}={text}" for option in UPGRADE_OPTIONS for text in getattr(options, _attribute(option))]
    if options.reset_then_reuse_values:
        given.append("--reset-then-reuse-values")
    if options.second and given:
        raise ConfigError(
            f"a second release ({options.second}) and values for an upgrade of the first are two comparisons",
            hint=f"leave out {options.second} or {' '.join(given)}",
        )
    with _cluster_side("diff"):
        from rankzero.cluster import diff
    return diff.show(
        options.first,
        options.second,
        options.namespace,
        options.chart,
        given,
        as_json=options.output == "json",
    )


def _attribute(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


@contextmanager
def _cluster_side(command: str) -> Iterator[None]:
    """For imports of what is not in the trainer image."""
    try:
        yield
    except ImportError as error:
        raise RankzeroError(
            f"`rankzero {command}` needs the package {error.name}", hint="pip install 'rankzero[cluster]'"
        ) from error


def _status(options: argparse.Namespace) -> int:
    with _cluster_side("status"):
        from rankzero.cluster import status
    return status.show(options.name, options.namespace, as_json=options.output == "json")


def _launch(options: argparse.Namespace) -> int:
    from rankzero.launch import exit_status, termination  # other commands do not need the launcher
    from rankzero.launch import main as launcher

    try:
        return launcher.launch(options.config)
    except RankzeroError as error:
        termination.leave(str(error))
        error.exit_code = exit_status.of_error(os.environ, error.exit_code)
        raise
    except Exception as error:
        traceback.print_exc()
        told = InternalError(
            f"the launcher failed by a bug of its own: {type(error).__name__}: {error}",
            hint="report it with the traceback in this pod's log; the run goes on when the container starts again",
        )
        termination.leave(str(told))
        told.exit_code = exit_status.of_error(os.environ, told.exit_code)
        raise told from error


if __name__ == "__main__":
    main()
