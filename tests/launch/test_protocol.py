from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rankzero import contract, heartbeat
from rankzero.launch import beats, protocol
from rankzero.launch.logs import LAST_LINE_LENGTH, LAST_LINES, Log, without_controls
from rankzero.launch.protocol import (
    Finish,
    Heartbeat,
    Lead,
    ProtocolError,
    RankBeat,
    Report,
    Start,
    Stop,
    WorkerFailed,
    decode,
    encode,
)
from rankzero.launch.workers import LONGEST_ERROR

LEAD = Lead(
    phase="startup", saves_on_stop=True, step=0, total_steps=10, epoch=0, samples=0, resumed_from=0, first_step=0,
    saved_step=0, loss=0.0, time=0.0, first_step_time=0.0, step_seconds=0.0, save_seconds=0.0, seconds={"data": 0.5},
)  # fmt: skip
REPORT = Report(1, [RankBeat(3, True, "sync", 7, 0.25, 0.1, 0.05, "S")], [LEAD])
FAILED = WorkerFailed(1, 0, 3, 1, 137, "SIGKILL", "", ["last line é"], 1.5)


@pytest.mark.parametrize(
    "message",
    [Heartbeat(), Start(2, "fd00::1", 4242), Stop(1, "why", 5.0), Finish("failed", "x", 7, "y\nz"), FAILED, REPORT],
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
        encode(REPORT).replace(b'"rank": 3', b'"rank": "3"'),
        encode(REPORT).replace(b'"ranks": [{', b'"ranks": [5, {'),
        encode(REPORT).replace(b'"data": 0.5', b'"data": null'),
        b"null",
        b'{"type": "Nothing"}',
        b'{"type": "Stopped"}',
        b'{"type": "Stopped", "attempt": "1"}',
        b'{"type": "Stopped", "attempt": true}',
        b'{"type": "Stopped", "attempt": 1, "more": 1}',
        b'{"type": ["Stopped"], "attempt": 1}',
        b"\xff\xfe",
        b"[" * 4000,
        b'{"type": "Report", "attempt": 1, "ranks": [], "rank0": {"loss": NaN}}',
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


@pytest.mark.parametrize("worst", ["\U0001f525", "\u0001", '"', "\\", "\t", "\x1b[1m"])
def test_a_failure_record_of_the_longest_kind_fits_into_a_message(worst: str) -> None:
    """A character takes at most four bytes; control characters, which would take six, are left out."""
    log = Log("attempt 1 rank 0", on_stdout=False)
    log.write("\n".join([worst * 2 * LAST_LINE_LENGTH] * 2 * LAST_LINES).encode())
    error = without_controls(worst * 2 * LONGEST_ERROR)[:LONGEST_ERROR] + 300 * "m"  # what is known about memory
    failure = WorkerFailed(10**6, 10**6, 10**6, 10**6, 255, "SIGSEGV", error, list(log.last_lines), 1e9 + 0.123456)
    assert len(failure.last_lines) == LAST_LINES
    assert len(encode(failure)) < protocol.MAX_LINE


def test_a_failure_is_told_in_one_sentence() -> None:
    assert FAILED.summary == "rank 3 (node rank 0) was ended by SIGKILL"
    document = json.loads(encode(FAILED)) | {"signal": "", "exit_code": 1, "error": "ValueError: x"}
    assert decode(json.dumps(document).encode()).summary == "rank 3 (node rank 0) ended with status 1: ValueError: x"  # type: ignore[union-attr]


def test_what_global_rank_0_does_not_know_yet_is_left_out_of_records() -> None:
    assert not {"step", "loss", "time", "first_step", "first_step_time"} & LEAD.record().keys()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_reaches_rank_0_as_null(tmp_path: Path, loss: float) -> None:
    """JSON has no NaN, and rank 0 drops a member that sends one: a training that diverges must not end that way."""
    rank = heartbeat.Heartbeat(tmp_path / contract.heartbeat_file(0))
    rank.step(3, epoch=0, loss=loss)
    report = decode(encode(beats.report(1, tmp_path, [0])))
    assert isinstance(report, Report)
    (later,) = report.lead
    assert later.record()["step"] == 3
    assert later.record()["loss"] is None
