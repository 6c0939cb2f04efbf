"""Is every sample seen exactly once in an epoch that is killed and resumed, also with another number of ranks?

The ranks of an attempt read in turn, in one process, each with one worker; "killed" is that nobody reads on, and the
next attempt begins with new objects and the states that the last one had after its last batch.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.data.peers import PEERS, Task, fresh, scratch

SAMPLES, BATCH, SHARDS, WORKERS = 1003, 4, 40, 1
ROUTES = {
    "undisturbed, 4 ranks": [(4, 0)],
    "killed, 4 -> 4 ranks": [(4, 30), (4, 0)],
    "killed twice, 4 -> 2 -> 4 ranks": [(4, 30), (2, 60), (4, 0)],
}
"""World sizes in turn, each with the steps it makes before it is killed; 0: to the end of the epoch."""


def compare(name: str) -> dict[str, Any]:
    """What this reader does on each route."""
    walk = _mosaic if name == "mosaicml-streaming" else _walk
    answer: dict[str, Any] = {}
    with scratch() as place:
        folder = fresh(Path(place) / "data")
        PEERS[name]().write([(number, b"\xff\xd8\xff" + bytes(100)) for number in range(SAMPLES)], folder, SHARDS)
        for route, attempts in ROUTES.items():
            try:
                seen = walk(name, folder, attempts)
            except Exception as error:  # of whatever kind the peer has
                answer[route] = {"exact": False, "fails": f"{type(error).__name__}: {error}"[:300]}
            else:
                missing, repeated = SAMPLES - len(seen), seen.total() - len(seen)
                answer[route] = {"exact": not missing and not repeated, "missing": missing, "repeated": repeated}
    return answer


def _walk(name: str, folder: Path, attempts: list[tuple[int, int]]) -> Counter[int]:
    seen: Counter[int] = Counter()
    states: list[Any] = []
    for world_size, steps in attempts:
        after = []
        for rank in range(world_size):
            stream = PEERS[name]().read(Task(folder, rank, world_size, BATCH, WORKERS))
            if states:
                stream.resume(states[min(rank, len(states) - 1)])
            for step, batch in enumerate(stream, 1):
                seen.update(number for number, _ in batch)
                if step == steps:
                    break
            after.append(stream.state())
        states = after
    return seen


def _mosaic(_: str, folder: Path, attempts: list[tuple[int, int]]) -> Counter[int]:
    """What its own partition of an epoch gives to the ranks; its data set itself wants them all to be there."""
    streaming = import_module("streaming")
    generate_work = import_module("streaming.base.batching").generate_work
    world = import_module("streaming.base.world").World
    streaming.base.util.clean_stale_shared_memory()
    dataset = streaming.StreamingDataset(
        local=str(folder), shuffle=True, shuffle_seed=0, batch_size=BATCH, num_canonical_nodes=64
    )  # 64 is what it takes itself for one node
    seen: Counter[int] = Counter()
    done = 0
    for world_size, steps in attempts:
        ranks = world(num_nodes=1, ranks_per_node=world_size, workers_per_rank=WORKERS, worker=0)
        work = generate_work(dataset.batching_method, dataset, ranks, 0, done)  # node, rank, worker, batch, sample
        seen.update(number for number in work[:, :, :, : steps or None].flatten().tolist() if number >= 0)
        done += steps * world_size * BATCH
    return seen
