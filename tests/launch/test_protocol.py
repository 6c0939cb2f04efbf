from __future__ import annotations

import json

import pytest

from rankzero.launch import protocol
from rankzero.launch.protocol import Finish, Heartbeat, ProtocolError, Start, Stop, WorkerFailed, decode, encode

FAILED = WorkerFailed(1, 0, 3, 1, 137, "SIGKILL", "", ["last line é"], 1.5)


@pytest.mark.parametrize(
    "message", [Heartbeat(), Start(2, "fd00::1", 4242), Stop(1, "why", 5.0), Finish("failed", "x", 7), FAILED]
)
def test_a_message_survives_the_wire(message: protocol.Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"[]",
        b"null",
        b'{"type": "Nothing"}',
        b'{"type": "Stopped"}',
        b'{"type": "Stopped", "attempt": "1"}',
        b'{"type": "Stopped", "attempt": true}',
        b'{"type": "Stopped", "attempt": 1, "more": 1}',
        b'{"type": ["Stopped"], "attempt": 1}',
        b"\xff\xfe",
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_a_failure_record_of_the_longest_kind_fits_into_a_message() -> None:
    from rankzero.launch.output import LAST_LINE_LENGTH, LAST_LINES

    for worst in ("\u0001", "\U0001f525"):  # control characters take six bytes each, others at most four
        failure = WorkerFailed(1, 0, 0, 0, 1, "", worst * 1000, [worst * LAST_LINE_LENGTH] * LAST_LINES, 0.0)
        assert len(encode(failure)) < protocol.MAX_LINE


def test_a_failure_is_told_in_one_sentence() -> None:
    assert FAILED.summary == "rank 3 (node rank 0) was ended by SIGKILL"
    document = json.loads(encode(FAILED)) | {"signal": "", "exit_code": 1, "error": "ValueError: x"}
    assert decode(json.dumps(document).encode()).summary == "rank 3 (node rank 0) ended with status 1: ValueError: x"  # type: ignore[union-attr]
