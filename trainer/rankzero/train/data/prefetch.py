"""Fetching shards into the node's cache before they are needed, in threads of the training process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

THREADS = 4


class Prefetcher:
    """Called with the shards that are needed next. A failure is left to the reader that needs the shard to meet it.

    The threads start with the first call, which a DataLoader makes when its workers have been forked.
    """

    def __init__(self, fetch: Callable[[int], object]) -> None:
        """``fetch`` has a shard in the cache; it is called from several threads."""
        self._fetch = fetch
        self._pool: ThreadPoolExecutor | None = None
        self._pending: dict[int, Future[object]] = {}

    def __call__(self, shards: list[int]) -> None:
        """Fetch these, in this order, and none of those asked for before that have not begun."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rankzero-prefetch")
        for shard, future in list(self._pending.items()):
            if shard not in shards:
                future.cancel()
                del self._pending[shard]
        for shard in shards:
            if shard not in self._pending:
                self._pending[shard] = self._pool.submit(self._fetch, shard)

    def rest(self) -> None:
        """Begin nothing more until the next call: the end of the process waits for what is asked for."""
        for future in self._pending.values():
            future.cancel()
        self._pending.clear()
