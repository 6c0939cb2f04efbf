"""What launchers say to the coordinator and back: one JSON object a line.

A message is a frozen dataclass; its class name is the ``type`` on the wire. Both ends refuse what they do not
know, so that a stray client or another version fails with a sentence instead of a strange state.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankzero.heartbeat import Course

VERSION = 6
MAX_LINE = 64 * 1024
"""Bytes of one message; a longer line is not ours."""
MAX_GREETING = 4096
"""Bytes of the first message; strangers shall not fill the memory with more."""
LONGEST_NAME = 253
"""Characters of a text in a greeting: Kubernetes allows no longer name."""


class ProtocolError(Exception):
    """The other end sent something that is no message of ours."""


@dataclass(frozen=True)
class Hello:
    """First line of a member.

    ``code``: what its ranks would run (``code.py``); empty where that is not known. ``last_words``: what is known of
    how its container ended before; mostly empty.
    """

    version: int
    run: str
    node_rank: int
    pod_name: str
    pod_uid: str
    boot: str
    node_name: str
    config_hash: str
    code: str
    last_words: str


@dataclass(frozen=True)
class Welcome:
    """The member is part of the group."""

    nodes: int


@dataclass(frozen=True)
class Refused:
    """The member is not part of the group; ``final`` says that trying again cannot help."""

    reason: str
    final: bool


@dataclass(frozen=True)
class Heartbeat:
    """The sender is alive. A member sends it every second, and rank 0 sends it back."""


@dataclass(frozen=True)
class Start:
    """Start the workers of an attempt. ``master_port`` is new for each attempt."""

    attempt: int
    master_address: str
    master_port: int


@dataclass(frozen=True)
class RankBeat:
    """One rank as its launcher sees it.

    ``still`` is seconds since its last sign of progress, ``step_seconds`` the median of its last steps, ``own_seconds``
    that of its own part of them, ``process`` the kernel's letter for the state of its process, empty where there
    is none.
    """

    rank: int
    watched: bool
    phase: str
    step: int
    still: float
    step_seconds: float
    own_seconds: float
    process: str

    def record(self) -> dict[str, Any]:
        """As records and pages show it. Not dataclasses.asdict(), which copies in depth: there may be thousands."""
        return dict(vars(self))


@dataclass(frozen=True)
class Lead(Course):
    """Global rank 0 in full. ``loss`` is None where it is no number."""

    phase: str
    loss: float | None

    def record(self) -> dict[str, Any]:
        """As records and pages show it: what is not known yet is left out."""
        document = dataclasses.asdict(self)
        if not self.first_step:
            for key in ("first_step", "first_step_time", "step", "time", "loss"):
                del document[key]
        return document


@dataclass(frozen=True)
class Report:
    """A heartbeat of a member with workers: its ranks, and in ``lead`` global rank 0 where it is one of them."""

    attempt: int
    ranks: list[RankBeat]
    lead: list[Lead]


REPORTS_A_SECOND, BEATS_A_SECOND = 16, 32
"""What rank 0 may hear from all members together: it has a hundredth of a core for them."""


def report_every(nodes: int) -> float:
    """Seconds between two reports of a member; node rank 0's own cost no network and come each second."""
    return max(1.0, nodes / REPORTS_A_SECOND)


def beat_every(nodes: int, heartbeat_timeout: float) -> float:
    """Seconds between two messages of a member; several of them may be lost before it is missed."""
    return min(max(1.0, nodes / BEATS_A_SECOND), max(1.0, heartbeat_timeout / 5))


@dataclass(frozen=True)
class Dump:
    """The attempt has stalled: collect what its ranks are doing."""

    attempt: int


@dataclass(frozen=True)
class Dumped:
    """What was collected lies on the volume; ``where`` names, by rank, the innermost line of its Python stack."""

    attempt: int
    where: dict[str, str]


@dataclass(frozen=True)
class WorkersDone:
    """All workers of this member ended with status 0."""

    attempt: int


@dataclass(frozen=True)
class WorkerFailed:
    """A worker failed. ``exit_code`` follows the shell: 128 + the signal's number where a signal ended it.

    ``time`` is in seconds since the epoch, ``last_lines`` the end of the worker's output. ``out_of_memory``: the
    kernel has killed it, or a process of its pod, for memory.
    """

    attempt: int
    node_rank: int
    rank: int
    local_rank: int
    exit_code: int
    signal: str
    error: str
    last_lines: list[str]
    time: float
    out_of_memory: bool = False

    @property
    def summary(self) -> str:
        """One sentence for a person."""
        how = f"was ended by {self.signal}" if self.signal else f"ended with status {self.exit_code}"
        return f"rank {self.rank} (node rank {self.node_rank}) {how}" + (f": {self.error}" if self.error else "")


@dataclass(frozen=True)
class Stop:
    """Stop the workers of the attempt: SIGTERM, ``grace`` seconds, SIGKILL."""

    attempt: int
    reason: str
    grace: float


@dataclass(frozen=True)
class Save:
    """Ask the workers of the attempt to save at a step they agree on, and to leave."""

    attempt: int


@dataclass(frozen=True)
class Stopped:
    """No worker of the attempt is left on this member, but for those that ``left`` names.

    They do not end even by SIGKILL, and the member leaves: where they run nothing can be started.
    """

    attempt: int
    left: str


@dataclass(frozen=True)
class Leaving:
    """The member's pod is being stopped from outside."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """The run has ended: ``state`` is succeeded, failed or stopped; ``message`` is the pods' termination message."""

    state: str
    reason: str
    exit_code: int
    message: str


Message = (
    Hello
    | Welcome
    | Refused
    | Heartbeat
    | Start
    | Report
    | Dump
    | Dumped
    | WorkersDone
    | WorkerFailed
    | Save
    | Stop
    | Stopped
    | Leaving
    | Finish
)
_BY_NAME: dict[str, type[Message]] = {kind.__name__: kind for kind in typing.get_args(Message)}


def _no_number(name: str) -> None:
    """NaN and infinity, which Python would take, end up in records that others could not read."""
    raise ValueError(name)


_JSON = json.JSONDecoder(parse_constant=_no_number)


def encode(message: Message) -> bytes:
    """The message as one line."""
    document = {"type": type(message).__name__, **dataclasses.asdict(message)}
    return json.dumps(document, ensure_ascii=False).encode(errors="replace") + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line. Raises :class:`ProtocolError` for anything else."""
    try:
        document = _JSON.decode(line.decode())
    except (ValueError, RecursionError) as error:  # the latter by a few thousand brackets
        raise ProtocolError(f"not a message: {line[:80]!r}") from error
    if not isinstance(document, dict) or (kind := _BY_NAME.get(str(document.pop("type", "")))) is None:
        raise ProtocolError(f"not a known message: {line[:80]!r}")
    if kind is Hello and isinstance(version := document.get("version"), int) and version != VERSION:
        document = _as_ours(document)
    message = typing.cast(Message, _build(kind, document))
    if isinstance(message, Hello):
        _check_texts(message)
    return message


def _check_texts(hello: Hello) -> None:
    """They become part of records and of lines in the log, before anybody knows who sent them."""
    for name, value in vars(hello).items():
        if isinstance(value, str) and (len(value) > LONGEST_NAME or not value.isprintable()):
            raise ProtocolError(f"Hello.{name} is {value[:80]!r}")


def _as_ours(hello: dict[str, Any]) -> dict[str, Any]:
    """The greeting of another version: what we know of it, so that it can be refused with a sentence."""
    unknown = {"version": -1, "node_rank": -1}
    return {name: hello.get(name, unknown.get(name, "")) for name in _CHECKS[Hello]}


def _build(kind: type[Any], document: dict[str, Any]) -> Any:
    checks = _CHECKS[kind]
    if document.keys() != checks.keys():
        raise ProtocolError(f"{kind.__name__} has the fields {sorted(document)}, expected {sorted(checks)}")
    values = {}
    for name, value in document.items():
        try:
            values[name] = checks[name](value)
        except _Unexpected as error:
            raise ProtocolError(f"{kind.__name__}.{name} is {error.value!r}") from None
    return kind(**values)


class _Unexpected(Exception):
    """A value of another type than its field."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _check_of(hint: Any) -> Callable[[Any], Any]:
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is Any:
        return lambda value: value
    if origin is types.UnionType:  # used for one thing only: a value or null
        inner = _check_of(parts[0])
        return lambda value: None if value is None else inner(value)
    if dataclasses.is_dataclass(origin):
        kind = typing.cast("type[Any]", origin)
        return lambda value: _build(kind, _typed(value, dict))
    if origin is list:
        inner = _check_of(parts[0])
        return lambda value: [inner(item) for item in _typed(value, list)]
    if origin is dict:
        inner = _check_of(parts[1])
        return lambda value: {key: inner(item) for key, item in _typed(value, dict).items()}
    if origin is float:
        return lambda value: value if type(value) is float else _typed(value, int)
    return lambda value: _typed(value, origin)


def _typed(value: Any, kind: type[Any]) -> Any:
    # JSON's values are of exactly these types; isinstance() would take true for a number.
    if type(value) is not kind:
        raise _Unexpected(value)
    return value


_CHECKS: dict[type[Any], dict[str, Callable[[Any], Any]]] = {
    kind: {name: _check_of(hint) for name, hint in typing.get_type_hints(kind).items()}
    for kind in (*typing.get_args(Message), RankBeat, Lead)
}
"""By class and field, what takes JSON's value. Made once: rank 0 of a large group hears of a hundred ranks a second."""


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None at the end of the stream. Raises ProtocolError."""
    try:
        line = await reader.readline()
    except ValueError as error:  # StreamReader's way to say: longer than its limit
        raise ProtocolError(f"a line of more than {MAX_LINE} bytes") from error
    except OSError:
        return None
    return decode(line) if line.endswith(b"\n") else None


async def receive_greeting(reader: asyncio.StreamReader) -> Message | None:
    """The first message of a connection, after which the other end waits for the answer. Else as :func:`receive`."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            chunk = await reader.read(MAX_GREETING)
        except OSError:
            return None
        if not chunk:
            return None
        line += chunk
        if len(line) > MAX_GREETING:
            raise ProtocolError(f"a greeting of more than {MAX_GREETING} bytes")
    return decode(line)


async def send(writer: asyncio.StreamWriter, message: Message) -> None:
    """Send a message. A broken connection is not reported here: the reading side sees it."""
    await send_encoded(writer, encode(message))


async def send_encoded(writer: asyncio.StreamWriter, line: bytes) -> None:
    """Send what :func:`encode` has made. Else as :func:`send`."""
    try:
        writer.write(line)
        await writer.drain()
    except OSError:
        return
