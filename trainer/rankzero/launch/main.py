"""``rankzero launch``: the life of one pod, from preflight to the end of the run."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from rankzero import config as settings
from rankzero import contract
from rankzero.config import RunConfig
from rankzero.errors import PreflightError, StuckProcessError
from rankzero.launch import exit_status, ledger, node_profile, preflight, stdout, termination, volume, world
from rankzero.launch import identity as identities
from rankzero.launch.coordinator import Coordinator, Outcome
from rankzero.launch.ending import Ending
from rankzero.launch.identity import Identity
from rankzero.launch.last_words import LastWords
from rankzero.launch.member import Member
from rankzero.launch.memory import own_cgroup
from rankzero.launch.one_line import one_line
from rankzero.launch.processes import inherit_orphans
from rankzero.launch.protocol import Finish
from rankzero.launch.records import Records
from rankzero.launch.roster import Roster
from rankzero.launch.snapshot import snapshot
from rankzero.launch.status import StatusServer

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LEAVE_WITHIN = 10.0
"""Seconds for tasks to end after their workers have."""
CANCEL_WITHIN, CLOSE_WITHIN = 1.0, 1.5
"""Seconds for that, and for the last record, where the pod's grace goes on meanwhile (member.LAST_SECONDS)."""


def launch(config_path: str) -> int:
    """Run this pod's part of the run and return the exit status. Raises RankzeroError for a person to read."""
    # Kept until there is somebody to hear it: PID 1 ignores a signal without a handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    config = settings.load(config_path)
    identity = identities.from_environment(os.environ, nodes=config.launch.nodes)
    world.check(os.environ, config.launch, identity.node_rank)
    for name, value in node_profile.variables().items():
        os.environ.setdefault(name, value)  # workers inherit them
    try:
        for warning in preflight.check(config, identity):
            say(f"warning: {warning}")
        return asyncio.run(Launcher(config, identity, config_path).run())
    finally:
        stdout.finish()


def say(text: str) -> None:
    """One line of the launcher's own log, whatever names and errors of others it quotes."""
    stdout.write(f"{time.strftime('%H:%M:%S')} rankzero: {one_line(text)}\n".encode(errors="replace"))


class Launcher:
    """Composes member, coordinator (rank 0 only), status page and signals."""

    def __init__(self, config: RunConfig, identity: Identity, config_path: str) -> None:
        self.config = config
        self.identity = identity
        self.records = Records(identity.state_dir, identity.run_name, identity.run_id, identity.pod_uid)
        cgroup = own_cgroup()
        self.last_words = LastWords(identity.pod_uid, cgroup, lambda: self.member.attempt)
        self.member = Member(config.launch, identity, config_path, say, cgroup, self.last_words.before)
        self.coordinator: Coordinator | None = None
        self.ending = Ending(identity, say)
        self.outcome: dict[str, Any] | None = None
        """The document of outcome.json, on node rank 0 once the run has ended."""
        self.stop_asked = asyncio.Event()

    async def run(self) -> int:
        """Take part until the run has ended or the pod is being stopped."""
        inherit_orphans()
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop_asked.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # before any thread or child could inherit it
        status = self._status_server()
        self.last_words.start()
        ticking = asyncio.create_task(_tick(status))
        try:
            return await self._take_part()
        finally:
            ticking.cancel()
            self.last_words.stop()

    async def _take_part(self) -> int:
        if self.identity.node_rank == 0:
            roster = Roster(self.config.launch, self.identity.run_key, self.identity.config_hash, say)
            server = await self._serve(roster)
            self.coordinator = Coordinator(
                self.config.launch,
                roster,
                self.records,
                master_address=self.identity.pod_ip,
                last_words=self.last_words.before,
                restarts_in_place=self.identity.restarts_in_place,
                say=say,
            )
            work = asyncio.create_task(self._lead(self.coordinator))
        else:
            server = None
            work = asyncio.create_task(self._follow())
        asked = asyncio.create_task(self.stop_asked.wait())
        try:
            await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                return await self._leave(work)
            finish = work.result()
            say(f"the run has {finish.state}: {finish.reason}")
            if self.coordinator is not None:
                say(ledger.sentence(self.records.ledger({})))
            if finish.exit_code:
                termination.leave(finish.message)
            if self.ending.waits_for_deletion:
                if self.identity.node_rank == 0:
                    await self.ending.free(self._is_owner, self.stop_asked)
                await self.stop_asked.wait()
            return exit_status.of_ended_run(self.identity.kind, finish.exit_code)
        finally:
            asked.cancel()
            if server is not None:
                server.close()

    async def _leave(self, work: asyncio.Task[Finish]) -> int:
        """The pod is being stopped: everybody hears of it, the workers stop, the record is closed."""
        say("this pod is being stopped (SIGTERM): telling rank 0 and stopping the workers")
        attempt = self.member.attempt
        await self.member.leave("its pod is being stopped")
        work.cancel()
        await asyncio.wait({work}, timeout=CANCEL_WITHIN)
        if self.coordinator is not None:
            await self.coordinator.close_interrupted(within=CLOSE_WITHIN)
        record = self.records.attempts[-1] if self.records.attempts else None
        termination.leave(termination.of_stopped_pod(attempt, record))
        return exit_status.of_pod(self.identity.kind, contract.EXIT_REQUEUE)

    async def _follow(self) -> Finish:
        """Take part in what rank 0 decides.

        Where pods end with their run and it has succeeded, rank 0's pod is gone for good, and the volume tells a pod
        that was replaced at the last moment. Of a run that has failed only rank 0 knows whether it is tried again.
        """
        if not self.ending.waits_for_deletion:
            outcome = await volume.attempt(self.records.outcome, None, say)
            if outcome is not None and outcome["state"] == "succeeded":
                return Finish(outcome["state"], outcome["reason"], outcome["exit_code"], "")
        return await self.member.run()

    # --- Node rank 0 -------------------------------------------------------------------------------------

    async def _lead(self, coordinator: Coordinator) -> Finish:
        """Decide on the run and take part in it. Whoever joins after its end is told how it ended."""
        self.outcome = await volume.attempt(self._ended_before, None, say)
        if self.outcome is None:
            outcome = await self._decide(coordinator)
            await self._record(outcome)
        else:  # its Event may have expired since
            outcome = Outcome(*(self.outcome[key] for key in ("state", "reason", "exit_code")))
            await self.ending.post_event(self.outcome)
        return await coordinator.announce(outcome)

    async def _decide(self, coordinator: Coordinator) -> Outcome:
        member = asyncio.create_task(self.member.run())
        decide = asyncio.create_task(coordinator.run())
        try:
            await asyncio.wait({member, decide}, return_when=asyncio.FIRST_COMPLETED)
            if not decide.done():  # a member of rank 0 ends before its coordinator only by an error
                member.result()
            return await decide
        except StuckProcessError as error:
            decide.cancel()
            await asyncio.wait({decide}, timeout=LEAVE_WITHIN)
            await coordinator.close_interrupted(error.message, within=CLOSE_WITHIN)
            raise
        finally:
            for task in (decide, member):
                task.cancel()
            await asyncio.wait({decide, member}, timeout=LEAVE_WITHIN)

    async def _serve(self, roster: Roster) -> asyncio.Server:
        port = self.config.launch.rendezvous_port
        try:
            return await roster.serve()
        except OSError as error:
            raise PreflightError(
                f"the rendezvous port {port} cannot be used: {error.strerror}",
                hint="with the host network another program of the node owns it: see which with `ss -ltnp` there, "
                "or set launch.rendezvousPort",
            ) from error

    def _ended_before(self) -> dict[str, Any] | None:
        """The document of how the run ended, where nothing is left to do; loads the records. Runs in a thread.

        A run that has succeeded is not run again. One that has failed is, but not by a mere restart of the
        container in which it failed: only in a new pod, since then somebody started it again.
        """
        self.records.load({"world_size": self.config.world_size})
        outcome = self.records.outcome()
        if outcome is None:
            return None
        if outcome["state"] == "succeeded":
            say("this run has succeeded before; set run.id to train anew")
        elif outcome["pod_uid"] != self.identity.pod_uid:
            say(f"this run failed before ({outcome['reason']}); trying again")
            self.records.set_outcome_aside()
            return None
        return outcome

    async def _record(self, outcome: Outcome) -> None:
        """Leave the outcome on the volume and as an Event; neither may keep the run from ending."""
        if not await self._is_owner():
            say("another pod has taken over node rank 0; leaving the outcome to it")
            return
        nothing: dict[str, Any] = {}
        result = await volume.attempt(self.records.result, nothing, say)
        self.outcome = document = self.records.describe_outcome(
            outcome.state, outcome.reason, outcome.exit_code, result
        )
        await volume.attempt(lambda: self.records.write_outcome(document), None, say)
        await self.ending.post_event(document)

    async def _is_owner(self) -> bool:
        return await volume.attempt(self.records.is_owner, True, say)

    # --- Status ------------------------------------------------------------------------------------------

    def _status_server(self) -> StatusServer:
        port = self.config.launch.status_port
        try:
            server = StatusServer(port, self.snapshot, lambda: self.member.ready)
        except OSError as error:
            raise PreflightError(
                f"the status port {port} cannot be used: {error.strerror}",
                hint="with the host network another program of the node owns it: see which with `ss -ltnp` there, "
                "or set launch.statusPort",
            ) from error
        server.start()
        return server

    def snapshot(self) -> dict[str, Any]:
        """What /status shows."""
        document = snapshot(self.identity, self.member, self.coordinator)
        return {
            **document,
            "waiting_for": self.ending.parked or document["waiting_for"],
            "outcome": self.outcome,
        }


async def _tick(status: StatusServer) -> None:
    while True:
        status.tick()
        await asyncio.sleep(1.0)
