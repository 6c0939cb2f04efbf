"""``rankzero launch``: the life of one pod, from preflight to the end of the run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rankzero import config as settings
from rankzero import contract
from rankzero.config import RunConfig
from rankzero.errors import ClusterError, PreflightError
from rankzero.launch import identity as identities
from rankzero.launch import preflight
from rankzero.launch.coordinator import Coordinator, Outcome
from rankzero.launch.identity import Identity
from rankzero.launch.kubernetes_api import InCluster
from rankzero.launch.member import Member
from rankzero.launch.protocol import Finish
from rankzero.launch.records import Records
from rankzero.launch.status import StatusServer

RETRY_SCALE_EVERY = 10.0


def launch(config_path: str) -> int:
    """Run this pod's part of the run and return the exit status. Raises RankzeroError for a person to read."""
    config = settings.load(config_path)
    identity = identities.from_environment(os.environ, nodes=config.launch.nodes)
    for warning in preflight.check(config, identity):
        say(f"warning: {warning}")
    return asyncio.run(Launcher(config, identity, config_path).run())


def say(text: str) -> None:
    """One line of the launcher's own log."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} rankzero: {text}\n")
    sys.stdout.flush()


def leave_termination_message(text: str) -> None:
    """Leave the reason where Kubernetes shows it (4096 bytes at most); outside a pod there is no such file."""
    path = Path(contract.TERMINATION_LOG)
    if path.exists():
        path.write_text(text[:4000], encoding="utf-8")


class Launcher:
    """Composes member, coordinator (rank 0 only), status page and signals."""

    def __init__(self, config: RunConfig, identity: Identity, config_path: str) -> None:
        self.config = config
        self.identity = identity
        self.records = Records(identity.state_dir)
        self.member = Member(config.launch, identity, config_path, say)
        self.coordinator: Coordinator | None = None
        self.stop_asked = asyncio.Event()

    async def run(self) -> int:
        """Take part until the run has ended or the pod is being stopped."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop_asked.set)
        status = self._status_server()
        ticking = asyncio.create_task(_tick(status))
        try:
            return await self._take_part()
        finally:
            ticking.cancel()
            status.stop()

    async def _take_part(self) -> int:
        work = asyncio.create_task(self._rank0() if self.identity.node_rank == 0 else self.member.run())
        asked = asyncio.create_task(self.stop_asked.wait())
        await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            say("this pod is being stopped (SIGTERM): telling rank 0 and stopping the workers")
            await self.member.leave("its pod is being stopped")
            work.cancel()
            await asyncio.wait({work})
            return contract.EXIT_REQUEUE
        finish = work.result()
        say(f"the run has {finish.state}: {finish.reason}")
        if finish.exit_code:
            leave_termination_message(finish.reason)
        await self._release()
        return finish.exit_code

    # --- Node rank 0 -------------------------------------------------------------------------------------

    async def _rank0(self) -> Finish:
        """Host the group and take part in it."""
        if (ended := self._ended_before()) is not None:
            return ended
        self.records.write_run(
            {"run": self.identity.run_name, "run_id": self.identity.run_id, "world_size": self.config.world_size}
        )
        coordinator = self.coordinator = Coordinator(
            self.config.launch, self.identity.run_key, self.identity.pod_ip, self.records, say
        )
        server = await self._serve(coordinator)
        member = asyncio.create_task(self.member.run())
        decide = asyncio.create_task(coordinator.run())
        try:
            await asyncio.wait({member, decide}, return_when=asyncio.FIRST_COMPLETED)
            if not decide.done():  # a member of rank 0 ends before its coordinator only by an error
                member.result()
            outcome = await decide
            self._record(outcome)
            await coordinator.announce(outcome)
            return Finish(outcome.state, outcome.reason, outcome.exit_code)
        finally:
            for task in (decide, member):
                task.cancel()
            await asyncio.wait({decide, member})
            server.close()

    async def _serve(self, coordinator: Coordinator) -> asyncio.Server:
        port = self.config.launch.rendezvous_port
        try:
            return await coordinator.serve()
        except OSError as error:
            raise PreflightError(
                f"the rendezvous port {port} cannot be used: {error.strerror}",
                hint="with the host network another program owns it; see which with `ss -ltnp`",
            ) from error

    def _ended_before(self) -> Finish | None:
        """A run that has succeeded is not run again; one that has failed is, since somebody started it again."""
        outcome = self.records.outcome()
        if outcome is None:
            return None
        if outcome["state"] == "succeeded":
            say("this run has succeeded before; set run.id to train anew")
            return Finish("succeeded", outcome["reason"], contract.EXIT_OK)
        say(f"this run failed before ({outcome['reason']}); trying again")
        self.records.set_outcome_aside()
        return None

    def _record(self, outcome: Outcome) -> None:
        document = self.records.write_outcome(outcome.state, outcome.reason, outcome.exit_code)
        kind, _, name = self.identity.workload.partition("/")
        if not name:
            return
        good = outcome.state == "succeeded"
        try:
            InCluster(self.identity.namespace).post_event(
                kind,
                name,
                reason=contract.EVENT_SUCCEEDED if good else contract.EVENT_FAILED,
                message=outcome.reason,
                warning=not good,
                outcome=json.dumps(document),
            )
        except ClusterError as error:
            say(f"could not record the Event: {error}")

    # --- The end -----------------------------------------------------------------------------------------

    async def _release(self) -> None:
        """Free what the run holds.

        A StatefulSet never finishes by itself: rank 0 scales it to 0, and every pod waits to be deleted, since
        an exit would only make the kubelet start the container again. Other workloads end by the exit itself.
        """
        kind, _, name = self.identity.workload.partition("/")
        if kind != "StatefulSet":
            return
        while self.identity.node_rank == 0 and not self.stop_asked.is_set():
            try:
                await asyncio.to_thread(InCluster(self.identity.namespace).scale_to_zero, name)
                say(f"scaled StatefulSet {name} to 0: its GPUs are free, its checkpoints stay")
                break
            except ClusterError as error:
                say(f"cannot scale StatefulSet {name} to 0, so its GPUs stay booked: {error}")
                await self._wait_for_stop(RETRY_SCALE_EVERY)
        await self.stop_asked.wait()

    async def _wait_for_stop(self, timeout: float) -> None:
        waiting = asyncio.create_task(self.stop_asked.wait())
        await asyncio.wait({waiting}, timeout=timeout)
        waiting.cancel()

    # --- Status ------------------------------------------------------------------------------------------

    def _status_server(self) -> StatusServer:
        port = self.config.launch.status_port
        try:
            server = StatusServer(port, self.snapshot)
        except OSError as error:
            raise PreflightError(
                f"the status port {port} cannot be used: {error.strerror}",
                hint="with the host network another program owns it; see which with `ss -ltnp`",
            ) from error
        server.start()
        return server

    def snapshot(self) -> dict[str, Any]:
        """What /status shows: this pod, and on rank 0 the group. Times are seconds since the epoch."""
        member = self.member
        document: dict[str, Any] = {
            "run": self.identity.run_name,
            "run_id": self.identity.run_id,
            "pod": self.identity.pod_name,
            "node_rank": self.identity.node_rank,
            "state": member.state,
            "waiting_for": member.waiting_reason,
            "last_failure": member.last_failure.summary if member.last_failure else None,
        }
        if (coordinator := self.coordinator) is not None:
            document["group"] = {
                "state": coordinator.state,
                "attempt": coordinator.attempt,
                "nodes": self.config.launch.nodes,
                "world_size": self.config.world_size,
                "absent": coordinator.absent(),
                "progress": self.records.progress(),
                "attempts": self.records.summary(),
            }
        return document


async def _tick(status: StatusServer) -> None:
    while True:
        status.tick()
        await asyncio.sleep(1.0)
