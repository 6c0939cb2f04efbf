"""What rank 0 knows of the ranks from their launchers' reports: how far they are, whether they move."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from rankzero import contract
from rankzero.config import LaunchConfig
from rankzero.launch.pace import Straggler
from rankzero.launch.protocol import Lead, RankBeat, Report, report_every
from rankzero.launch.watchdog import Stall, Watchdog

JUDGE_EVERY = 1.0
"""Seconds between two looks at all ranks; there may be thousands."""
COMPARE_EVERY = 10.0
"""Seconds between two comparisons of the ranks' speed."""
SAVE_SHARE = 0.8
"""Of launch.saveTimeout; a save that takes more leaves too little room."""


class Observer:
    """Runs on node rank 0 only. ``say`` prints a line for a person."""

    def __init__(self, launch: LaunchConfig, say: Callable[[str], None]) -> None:
        self.progress: dict[str, Any] = {}
        """Global rank 0's last heartbeat, with its attempt; that of an earlier rank 0 before there is one."""
        self._launch = launch
        self._say = say
        self._watchdog = Watchdog(
            launch.stall, launch.nodes * launch.procs_per_node, delay=2 * report_every(launch.nodes)
        )
        self._straggler = Straggler(say)
        self._attempt = 0
        self._judged = self._compared = 0.0
        self._warned = False

    @property
    def beats(self) -> list[RankBeat]:
        """The last of every rank that beats in this attempt, by rank."""
        return self._watchdog.beats

    def begin(self, attempt: int) -> None:
        """Another attempt opens."""
        self._attempt = attempt
        self._watchdog.forget()
        self._straggler.forget()

    @property
    def has_heard(self) -> bool:
        """Whether global rank 0 has been heard in this attempt."""
        return bool(self.progress.get("attempt") == self._attempt)

    def hear(self, report: Report) -> None:
        """Take in what a member says of its ranks."""
        self._watchdog.hear(report.ranks)
        for lead in report.lead:
            self.progress = {**lead.record(), "rank": 0, "attempt": self._attempt}
            self._check_time_to_save(lead)

    def stall(self) -> Stall | None:
        """The stall, where there is one. Asked as often as one likes."""
        now = time.monotonic()
        if now - self._judged < JUDGE_EVERY:
            return None
        self._judged = now
        if now - self._compared >= COMPARE_EVERY:
            self._compared = now
            self._straggler.judge(self.beats, now)
        return self._watchdog.verdict()

    def _check_time_to_save(self, lead: Lead) -> None:
        """Warn once where ranks cannot save in the time that they have when a pod is being stopped.

        From the request on: the rest of a step, those until all ranks have agreed, the one that is agreed on, the save.
        """
        allowed = self._launch.save_timeout
        needed = (contract.STEPS_AHEAD + 2) * lead.step_seconds + lead.save_seconds
        if self._warned or not allowed or not lead.saves_on_stop or needed <= allowed * SAVE_SHARE:
            return
        self._warned = True
        wanted = math.ceil(needed / SAVE_SHARE)
        grace = wanted + self._launch.stop_timeout + contract.LEAVE_MARGIN
        self._say(
            f"warning: to save when a pod is being stopped takes {needed:.0f} s (steps of {lead.step_seconds:.1f} s, a "
            f"checkpoint of {lead.save_seconds:.1f} s) and launch.saveTimeout is {allowed} s: set launch.saveTimeout "
            f"to {wanted} and terminationGracePeriodSeconds to {grace}"
        )
