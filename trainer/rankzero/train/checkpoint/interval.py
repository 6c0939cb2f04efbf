"""When the next checkpoint is due: after so many steps, so many minutes, or when it pays."""

from __future__ import annotations

import math
import time

from rankzero.config import CheckpointConfig
from rankzero.train.checkpoint.peers import Peers

FIRST = 60.0
"""Seconds until the first one where the interval is to be found: nobody knows yet what a save costs."""


def optimal(cost: float, mtbf: float) -> float:
    """Seconds of training between two saves that lose the least time to saves and to work made again.

    ``cost`` is what one save takes from the training, ``mtbf`` the mean time between failures of the whole run, both
    seconds. J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
    Generation Computer Systems 22 (2006), 303-312; its first term is J. W. Young's (CACM 17, 1974, 530-531).
    """
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


class Interval:
    """Says on all ranks after the same steps that a save is due.

    Clocks differ, so rank 0's counts. It is asked when half of the steps that probably remain have been made, so the
    ranks talk about it a few times per checkpoint and not after every step.
    """

    def __init__(self, config: CheckpointConfig, peers: Peers, step: int) -> None:
        self.config = config
        self.peers = peers
        self.cost = 0.0
        """Seconds that the last save took from the training, on rank 0."""
        self.whole = 0.0
        """Seconds until it was durable."""
        self._saved_at = time.monotonic()
        self._asked, self._asked_at = step, self._saved_at
        self._ask = step + 1

    @property
    def seconds(self) -> float:
        """Between two saves; infinite where steps alone count."""
        if self.config.interval == "auto":
            if not self.cost:
                return FIRST
            return max(optimal(self.cost, self.config.mtbf_hours * 3600), self.whole)
        return self.config.every_minutes * 60 or math.inf

    def due(self, step: int) -> bool:
        """Whether to save after ``step``. Every rank calls it after each step."""
        every = self.config.every_steps
        if self.config.interval == "fixed" and every and step % every == 0:
            return True
        if math.isinf(self.seconds) or step < self._ask:
            return False
        steps = self.peers.broadcast(self._steps_to_wait(step) if self.peers.is_first else 0)
        self._asked, self._asked_at = step, time.monotonic()
        self._ask = step + max(1, steps)
        return steps == 0

    def saved(self, step: int, cost: float) -> None:
        """A save after ``step`` has been begun, which took ``cost`` seconds from the training."""
        self.cost = cost
        self._saved_at = self._asked_at = time.monotonic()
        self._asked, self._ask = step, step + 1

    def _steps_to_wait(self, step: int) -> int:
        """Until the next question; 0 where a save is due. Rank 0 calls it."""
        now = time.monotonic()
        left = self._saved_at + self.seconds - now
        if left <= 0:
            return 0
        per_step = (now - self._asked_at) / max(1, step - self._asked)
        return max(1, int(left / max(per_step, 1e-6) / 2))
