"""Pods that are back after their loss: what that says of the attempt that ended by it."""

from __future__ import annotations

from rankzero.launch.records import Records
from rankzero.launch.roster import Joined


class Returns:
    """Corrects the cause of the last attempt.

    ``restarts_in_place``: whether a container that has ended starts again in its pod.
    """

    def __init__(self, records: Records, *, restarts_in_place: bool) -> None:
        self._records = records
        self._restarts_in_place = restarts_in_place
        self._during: list[Joined] = []

    def note(self, joined: Joined) -> None:
        """A pod joins while the attempt still ends: its cause is not known yet."""
        self._during.append(joined)

    def settle(self) -> None:
        """The attempt has been closed: judge by those that came meanwhile."""
        for joined in self._during:
            self.judge(joined)
        self._during.clear()

    def judge(self, joined: Joined) -> bool:
        """True where the cause is another one now.

        A pod whose container started again was not lost: its container had ended. Where none starts again a closed
        connection is taken for that, until the same launcher is back: then only the connection was lost.
        """
        rank = joined.peer.rank
        if joined.restarted:
            return self._records.blame_container(rank, joined.peer.hello.last_words)
        return joined.returned and not self._restarts_in_place and self._records.absolve_container(rank)
