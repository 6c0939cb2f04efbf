"""One node's part in one attempt: its folder, its workers, what they say, and their end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch import beats, evidence, volume
from rankzero.launch.environment import worker_environments
from rankzero.launch.identity import Identity
from rankzero.launch.interface import interface_of, source_address
from rankzero.launch.logs import Logs
from rankzero.launch.memory import KillCount
from rankzero.launch.protocol import Report, Start, WorkerFailed
from rankzero.launch.starters import Starter, start_program, with_local_rank
from rankzero.launch.torchrun import start_torchrun
from rankzero.launch.workers import OnEnd, Worker, WorkerGroup, could_not_start

KEEP_WITHIN = 3.0
"""Seconds to copy evidence to the volume: a volume that hangs may be why the attempt has stalled."""


class LocalAttempt:
    """From :meth:`start` to :meth:`stop`. ``say`` prints a line for a person."""

    def __init__(
        self,
        order: Start,
        launch: LaunchConfig,
        identity: Identity,
        logs: Logs,
        kills: KillCount,
        say: Callable[[str], None],
    ) -> None:
        self.number = order.attempt
        self._order = order
        self._launch = launch
        self._identity = identity
        self._logs = logs
        self._kills = kills
        self._say = say
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        """The attempt's folder, from the start of the workers to :meth:`close`."""
        self._group: WorkerGroup | None = None
        first = identity.node_rank * launch.procs_per_node
        self._ranks = range(first, first + launch.procs_per_node)

    @property
    def pids(self) -> set[int]:
        """The processes that this launcher has started for it."""
        return {worker.pid for worker in self._workers}

    @property
    def ranks(self) -> dict[int, int]:
        """Rank by process id, also of workers that have ended."""
        return {pid: rank for worker in self._workers for pid, rank in worker.ranks.items()}

    @property
    def _workers(self) -> list[Worker]:
        return self._group.workers if self._group is not None else []

    async def start(self, starter: Starter, base: Mapping[str, str], on_end: OnEnd) -> None:
        """Start one worker per local rank, or one torchrun for them.

        ``on_end`` is called once: with None when all have ended with status 0, or with the first failure; workers that
        cannot be started are one.
        """
        launch, node_rank = self._launch, self._identity.node_rank
        program = [*(launch.command or [launch.script]), *launch.args]
        try:
            self._scratch = beats.attempt_folder(self._identity.pod_uid, self.number)
            folder = Path(self._scratch.name)
            environments = worker_environments(base, launch, self._identity, self._order, self._interface(), folder)
            if launch.method == "torchrun":
                self._group = await start_torchrun(
                    program, environments, folder, launch.stop_timeout, self.number, node_rank, self._logs
                )
            else:
                if launch.command:
                    starter = start_program
                elif launch.method == "launch":
                    starter = with_local_rank(starter)
                self._group = await WorkerGroup.start(
                    starter, program, environments, self.number, node_rank, self._logs
                )
        except (OSError, ValueError) as error:
            await on_end(could_not_start(error, self.number, node_rank, self._ranks[0]))
            return
        self._group.on_end(on_end)

    def explain(self, failure: WorkerFailed) -> WorkerFailed:
        """With what the kernel says of memory."""
        return self._kills.explain(failure)

    def ask_to_save(self) -> None:
        """Have the workers save at a step that all ranks agree on, and leave."""
        if self._scratch is not None:
            self._say("asking the workers to save and leave")
            Path(self._scratch.name, contract.STOP_FILE).touch()

    def report(self) -> Report:
        """What the local ranks last said."""
        if self._scratch is None:
            return Report(self.number, [], [])
        return beats.report(self.number, Path(self._scratch.name), self._ranks)

    async def dump(self) -> dict[str, str]:
        """Collect what the local ranks are doing and keep it on the volume; returns where each rank is."""
        if self._scratch is None:
            return {}
        folder = Path(self._scratch.name)
        where = await evidence.dump(folder, self._ranks)
        target = self._identity.state_dir / contract.evidence_dir(self.number)
        await volume.attempt(lambda: evidence.keep(folder, target), None, self._say, within=KEEP_WITHIN)
        return where

    async def stop(self, grace: float) -> list[int]:
        """End the workers: SIGTERM, up to ``grace`` seconds, SIGKILL; returns the processes that do not end by it."""
        return await self._group.stop(grace) if self._group is not None else []

    def close(self) -> Report:
        """The workers are gone: what they said last. Removes the folder."""
        report = self.report()
        if self._scratch is not None:
            self._scratch.cleanup()
        return report

    def _interface(self) -> str:
        """Name of the interface towards rank 0; rank 0 takes the one that owns its own address."""
        address = self._order.master_address
        try:
            name = interface_of(address if self._identity.node_rank == 0 else source_address(address))
        except OSError as error:
            name, reason = "", f": {error.strerror}"
        else:
            reason = ""
        if not name:
            self._say(f"no interface owns the address towards {address}{reason}; NCCL and gloo choose by themselves")
        return name
