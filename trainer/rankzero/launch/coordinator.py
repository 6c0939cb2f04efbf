"""The group's decisions, on node rank 0: when an attempt begins, that it ends everywhere, whether another is worth it.

An attempt is a fixed world with a fresh port for torch's store. All state changes happen in one task; the state
volume is only touched from threads, and never decides what the group does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.heartbeat import NOT_TOLD
from rankzero.launch import budget, causes, retention, termination, volume
from rankzero.launch.causes import CONTAINER, POD, STALLED, STOPPED, WORKER, Cause
from rankzero.launch.evidence import NO_ANSWER
from rankzero.launch.observer import Observer
from rankzero.launch.ports import free_port
from rankzero.launch.protocol import (
    Dump,
    Dumped,
    Finish,
    Leaving,
    Message,
    Report,
    Save,
    Start,
    Stop,
    Stopped,
    WorkerFailed,
    WorkersDone,
)
from rankzero.launch.records import Records
from rankzero.launch.returns import Returns
from rankzero.launch.roster import Joined, Lost, Peer, Roster, Said
from rankzero.launch.watchdog import odd_one_out

STOP_MARGIN = 10.0
"""Seconds beyond the workers' own grace after which a member that does not answer a Stop is dropped."""
FIRST_CAUSE_WITHIN = 2.0
"""Seconds for a worker to end after its peers have lost it: an interpreter with torch takes some tenths of one."""
DUMP_WITHIN = 10.0
"""Seconds for members to collect what the ranks of a stalled attempt are doing."""
REPORT_WITHIN = 1.5
"""Seconds within which every member with workers reports."""
GONE_WITHIN = 5.0
"""Seconds for the members to hear of the end and to go."""
PROGRESS_EVERY = 2.0
"""Seconds between two writes of progress.json."""


@dataclass(frozen=True)
class Outcome:
    """How the run ended."""

    state: str
    reason: str
    exit_code: int


SUCCEEDED = Outcome("succeeded", "every worker ended with status 0", contract.EXIT_OK)


class Coordinator:
    """Runs on node rank 0 only. ``say`` prints a line for a person; ``last_words`` are those of its predecessor."""

    def __init__(
        self,
        launch: LaunchConfig,
        roster: Roster,
        records: Records,
        *,
        master_address: str,
        last_words: str,
        restarts_in_place: bool,
        say: Callable[[str], None],
    ) -> None:
        self.launch = launch
        self.roster = roster
        self.records = records
        self.master_address = master_address
        self.say = say
        self._last_words = last_words
        self._restarts_in_place = restarts_in_place
        self.attempt = 0
        self.state = "waiting"
        self.observer = Observer(launch, say)
        self._began = time.monotonic()
        self._causes: list[Cause] = []
        self._saving = volume.Saving(records.save, say)
        self._removing = volume.Saving(
            lambda: retention.remove_old(records.state_dir, self.attempt, launch.keep_logs), say
        )
        self._where: dict[str, str] = {}
        """By rank, where it was when the attempt stalled."""
        self._stuck: list[str] = []
        """Workers of the attempt that do not end even by SIGKILL."""
        self._returns = Returns(records, restarts_in_place=restarts_in_place)

    async def run(self) -> Outcome:
        """Open attempts until the run has ended. Cancelled when this pod leaves."""
        if self.records.has_succeeded():  # and this process's predecessor died before it could say so
            return SUCCEEDED
        nothing: dict[str, Any] = {}
        self.observer.progress = await volume.attempt(self.records.last_progress, nothing, self.say)
        if self.records.close_lost(self.observer.progress, self._last_words, self._restarts_in_place):
            await self._saving.done()
        writing = asyncio.create_task(self._write_progress())
        try:
            return await self._until_ended()
        finally:
            writing.cancel()

    async def _until_ended(self) -> Outcome:
        while True:
            if reason := await self._verdict():
                return Outcome("failed", reason, self._exit_code())
            if missing := await self._gather():
                return Outcome("failed", missing, contract.EXIT_RANK0_UNREACHABLE)
            if reason := self._give_up():  # a pod that came back may have told that its container had died
                return Outcome("failed", reason, self._exit_code())
            if await self._run_attempt() is None:
                return SUCCEEDED

    async def announce(self, outcome: Outcome) -> Finish:
        """Tell every member, and those who come later, how the run ended; returns what was told."""
        self.state = outcome.state
        message = termination.of_failed_run(outcome.reason, self.records.attempts) if outcome.exit_code else ""
        finish = Finish(outcome.state, outcome.reason, outcome.exit_code, message)
        await self.roster.dismiss(finish)
        await self.roster.see_off(GONE_WITHIN)
        return finish

    async def close_interrupted(self, *said: str, within: float) -> None:
        """This pod leaves: end the open attempt's record; ``said`` tells why, where that is not the usual reason.

        ``within`` is seconds for the volume.
        """
        if self.state in {"running", "restarting"}:
            cause = causes.first(self._causes) if self._causes else Cause(STOPPED, "rank 0 is leaving", 0)
            await self._close_attempt(cause.with_more(said), within)

    # --- An attempt --------------------------------------------------------------------------------------

    async def _gather(self) -> str:
        """Wait until every node rank is here; returns why not at the deadline, else an empty text."""
        self.state = "waiting"
        deadline = time.monotonic() + self.launch.rank0_timeout
        said = ""
        while absent := self.roster.absent():
            ranks, here = ", ".join(map(str, absent)), self.launch.nodes - len(absent)
            if (now := f"waiting for node rank {ranks} ({here} of {self.launch.nodes} here)") != said:
                said = now
                self.say(now)
            left = deadline - time.monotonic()
            if left <= 0:
                return f"node rank {ranks} did not join within {self.launch.rank0_timeout} s"
            await self._next(min(left, 1.0))
        return ""

    async def _run_attempt(self) -> Cause | None:
        """One attempt from Start to the last Stopped; None where every worker ended with status 0."""
        self._causes, self._where, self._stuck = [], {}, []
        members = sorted(self.roster.peers.values(), key=lambda peer: peer.rank)
        self.attempt = self.records.open_attempt([_describe(peer) for peer in members])
        self.observer.begin(self.attempt)
        self.state = "running"
        self._began = time.monotonic()
        await self._saving.done()
        self._removing.ask()
        self.say(f"attempt {self.attempt}: {self.launch.nodes} x {self.launch.procs_per_node} processes")
        await self.roster.tell_all(Start(self.attempt, self.master_address, free_port()))
        await self._hear(WorkersDone, until=lambda: bool(self._causes))
        if not self._causes:
            await self._close_attempt(None)
            return None
        self.state = "restarting"
        await self._hear_what_came_first()
        if self._causes[0].kind == STOPPED:
            await self._save_everywhere()
        elif self._causes[0].kind == STALLED:
            await self._collect_evidence()
        await self._stop_everywhere(causes.first(self._causes).reason)
        cause = causes.first(self._causes).with_more(self._stuck)
        self.say(f"attempt {self.attempt} ended: {cause.reason}")
        await self._close_attempt(cause)
        return cause

    async def _hear_what_came_first(self) -> None:
        """Where workers have only lost a peer so far, give that one a moment to end and to say why."""

        def is_known() -> bool:
            heard = {cause.node_rank for cause in self._causes}
            return not all(cause.is_echo for cause in self._causes) or heard >= self.roster.peers.keys()

        await self._hear(WorkersDone, within=FIRST_CAUSE_WITHIN, until=is_known)

    async def _save_everywhere(self) -> None:
        """A pod is being stopped: let all ranks save at one step and leave, where the script can do that."""
        if not self.launch.save_timeout:
            return
        if not self._can_save and not (self.observer.has_heard and "step" in self.observer.progress):
            # It has only just begun, and the last report may be from before the script could tell.
            await self._hear(Report, within=REPORT_WITHIN, until=lambda: self._can_save)
        if not self._can_save:
            return
        began = time.monotonic()
        await self.roster.tell_all(Save(self.attempt))
        unheard = await self._hear(
            WorkersDone, WorkerFailed, within=self.launch.save_timeout, until=lambda: self._one_has_left
        )
        took = time.monotonic() - began
        if unheard and not self._one_has_left:
            self.say(f"not all ranks saved within launch.saveTimeout, {self.launch.save_timeout} s")
            return
        # Rank 0's last report may be on its way; a script with checkpoints of its own never tells of them.
        tells = self.observer.progress.get("saved_step", NOT_TOLD) != NOT_TOLD
        await self._hear(Report, within=REPORT_WITHIN, until=lambda: self._is_saved or not tells)
        what = "saved" if self._is_saved else "left, without saying that they saved"
        self.say(f"all ranks have {what}, {took:.1f} s after they were asked")

    @property
    def _can_save(self) -> bool:
        """Whether the script has said in this attempt that it saves when it is asked to stop."""
        return self.observer.has_heard and bool(self.observer.progress["saves_on_stop"])

    @property
    def _is_saved(self) -> bool:
        """Whether there is a checkpoint of the last step: a volume can refuse it, and a script end before it."""
        return bool(self.observer.progress.get("saved_step", NOT_TOLD) == self.observer.progress.get("step"))

    @property
    def _one_has_left(self) -> bool:
        """A rank that asks to be started again has passed the end of the save, which is the same for all ranks."""
        codes = (cause.failure.exit_code for cause in self._causes if cause.failure)
        return contract.EXIT_REQUEUE in codes

    async def _collect_evidence(self) -> None:
        """The attempt has stalled: learn what every rank is doing before the workers are stopped."""
        stalled = self._causes[0]
        self.say(stalled.reason)
        await self.roster.tell_all(Dump(self.attempt))
        await self._hear(Dumped, within=DUMP_WITHIN)
        self.records.note_where(self._where)
        suspect = stalled.rank if stalled.rank >= 0 else odd_one_out(self._where)
        if (line := self._where.get(str(suspect), NO_ANSWER)) != NO_ANSWER:
            self._causes[0] = self._stalled(f"{stalled.reason}; rank {suspect} is at {line}", suspect)

    async def _stop_everywhere(self, reason: str) -> None:
        """Stop all workers; returns when every member has none left or is gone."""
        await self.roster.tell_all(Stop(self.attempt, reason, float(self.launch.stop_timeout)))
        for peer in await self._hear(Stopped, within=self.launch.stop_timeout + STOP_MARGIN):
            self.roster.drop(peer, f"{peer.name} did not stop its workers in time")
            await self._next(0)

    async def _hear(
        self, *kinds: type[Message], within: float | None = None, until: Callable[[], bool] = lambda: False
    ) -> list[Peer]:
        """Wait until each member that is here has said one of ``kinds``, or is gone; returns those that have not."""
        waiting = set(self.roster.peers.values())
        deadline = time.monotonic() + within if within is not None else None
        while waiting and not until() and (deadline is None or time.monotonic() < deadline):
            event = await self._next(0.5)
            if isinstance(event, Said) and isinstance(event.message, kinds):
                waiting.discard(event.peer)
            waiting &= set(self.roster.peers.values())
        return list(waiting)

    async def _close_attempt(self, cause: Cause | None, within: float = volume.WITHIN) -> None:
        self.records.close_attempt(cause, self.observer.progress, time.monotonic() - self._began)
        self.state = "waiting" if cause else "ending"
        self._returns.settle()
        await self._saving.done(within)

    # --- Events ------------------------------------------------------------------------------------------

    async def _next(self, timeout: float) -> Joined | Lost | Said | None:
        """Take one event, note what it means for the attempt, and return it; not what an old attempt says."""
        event = await self.roster.next(timeout)
        match event:
            case Joined(peer) as joined:
                hello = peer.hello
                self.say(f"{hello.pod_name} joined as node rank {peer.rank} from node {hello.node_name}")
                if self.state != "waiting":
                    self._returns.note(joined)
                elif self._returns.judge(joined):
                    await self._saving.done()
            case Lost(peer, reason, closed) if not peer.leaving:
                # The pod that comes next cannot tell that the container of this one had ended by itself.
                kind = CONTAINER if closed and not self._restarts_in_place else POD
                self._note(Cause(kind, reason, peer.rank, at=peer.seen))
            case Said(peer, Leaving(reason)):
                peer.leaving = True
                self._note(Cause(STOPPED, f"{peer.name} is leaving: {reason}", peer.rank))
                self._note_ending()
            case Said(_, message) if getattr(message, "attempt", self.attempt) != self.attempt:
                return None
            case Said(peer, Stopped(left=left)) if left:
                self._stuck.append(left)
                peer.leaving = True
            case Said(peer, WorkerFailed() as failure):
                self._note(Cause(WORKER, failure.summary, peer.rank, failure))
            case Said(_, Dumped(where=where)):
                self._where |= where
            case Said(_, Report() as report):
                self.observer.hear(report)
        if self.state == "running" and not self._causes and (stall := self.observer.stall()):
            self._note(self._stalled(stall.reason, stall.suspect))
        return event

    def _stalled(self, reason: str, suspect: int) -> Cause:
        node_rank = suspect // self.launch.procs_per_node if suspect >= 0 else -1
        return Cause(STALLED, reason, node_rank, rank=suspect)

    def _note(self, cause: Cause) -> None:
        if self.state in {"running", "restarting"}:
            self._causes.append(cause)
        else:
            self.say(cause.reason)

    def _note_ending(self) -> None:
        """Not waited for: where this pod is the one that leaves, its grace runs, and SIGKILL may end it first."""
        if self._causes and self.state in {"running", "restarting"}:
            self.records.note_ending(causes.first(self._causes))
            self._saving.ask()

    # --- Helpers -----------------------------------------------------------------------------------------

    async def _verdict(self) -> str:
        """Why the run should end now; empty where another attempt is worth it.

        Not before a member that has only lost its connection had the time to come back: it stops its workers first.
        """
        reason = self._give_up()
        cause = self.records.attempts[-1]["cause"] if reason else None
        if not cause or cause["kind"] != CONTAINER or self._restarts_in_place:
            return reason
        deadline = time.monotonic() + self.launch.stop_timeout + STOP_MARGIN
        while (left := deadline - time.monotonic()) > 0 and cause["node_rank"] in self.roster.absent():
            await self._next(min(left, 1.0))
        return self._give_up()

    def _give_up(self) -> str:
        return budget.give_up(self.records.attempts, self.launch.attempts_without_progress)

    def _exit_code(self) -> int:
        """That of the worker that failed last; a stall and a container that died leave none."""
        failure = self.records.attempts[-1]["cause"]["failure"]
        return failure["exit_code"] if failure else contract.EXIT_NO_PROGRESS

    async def _write_progress(self) -> None:
        """Keep progress.json up to date: after the loss of this pod it says how far the attempt came."""
        written: dict[str, Any] = {}
        ranks: list[dict[str, Any]] = []
        complaints: set[str] = set()

        def complain(reason: str) -> None:
            if reason not in complaints:  # a full volume would be said every few seconds
                complaints.add(reason)
                self.say(reason)

        saving = volume.Saving(lambda: self.records.write_progress(written, ranks), complain)
        while True:
            if self.observer.progress and self.observer.progress != written:
                written = self.observer.progress
                ranks = [beat.record() for beat in self.observer.beats]
                await saving.done()
            await asyncio.sleep(PROGRESS_EVERY)


def _describe(peer: Peer) -> dict[str, Any]:
    hello = peer.hello
    return {"node_rank": peer.rank, "pod": hello.pod_name, "uid": hello.pod_uid, "node": hello.node_name}
