"""The error hierarchy. An error says what happened, where, and how to fix it. Imports only the contract."""

from rankzero import contract


class RankzeroError(Exception):
    """Base of every error that a person is meant to read.

    ``message`` says what happened and where, ``hint`` how to fix it. ``exit_code`` is the process's exit
    status when the error ends the program.
    """

    exit_code: int = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.hint}" if self.hint else self.message


class ConfigError(RankzeroError, ValueError):
    """A setting is missing, unknown, of the wrong type or out of range."""

    exit_code = contract.EXIT_USAGE


class PreflightError(RankzeroError):
    """The pod or one of its volumes is not fit for training."""

    exit_code = contract.EXIT_PREFLIGHT


class StuckProcessError(RankzeroError):
    """A worker does not end even by SIGKILL: it is in a system call that nothing interrupts."""

    exit_code = contract.EXIT_PREFLIGHT


class Rank0UnreachableError(RankzeroError):
    """Rank 0 was not reached, or refused this member, within the deadline."""

    exit_code = contract.EXIT_RANK0_UNREACHABLE


class CheckpointError(RankzeroError):
    """A checkpoint is missing, incomplete or does not match its manifest."""


class DataError(RankzeroError):
    """A data file cannot be read or is not what its name promises. (A path to nothing is a ConfigError.)"""


class DivergedError(RankzeroError):
    """The gradient is NaN or infinite, and the settings say not to go on."""


class ClusterError(RankzeroError):
    """The Kubernetes API refused or did not answer."""


class ForbiddenError(ClusterError):
    """The Kubernetes API may not be asked for this, for want of rights or of an account: asking again does not help."""


class UnreachableError(ClusterError):
    """The Kubernetes API did not answer, or said that it cannot now: asking again may help."""


class HelmError(RankzeroError):
    """Helm is missing, knows no such release, or refuses what it is asked for."""


class InternalError(RankzeroError):
    """A bug in rankzero itself."""

    exit_code = contract.EXIT_INTERNAL
