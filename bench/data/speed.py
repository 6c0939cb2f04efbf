"""Samples a second of each reader over the same photographs, cold and warm, with 0, 2 and 4 workers, in one run.

Shards lie on one disk and are read through an empty cache folder on the same. Cold is the first epoch, from the first
thing asked of the loader, with nothing of the shards in memory; warm are those after it. Files of one image each are
read where they are: torchdata has no cache. Images come as bytes, since decoding them would cost all alike.
"""

from __future__ import annotations

import io
import json
import os
import random
import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.data.peers import PEERS, Sample, Task, scratch

WORKERS = (0, 2, 4)
SHARDS = 32
BATCH = 32
CACHES, WARM_EPOCHS = 2, 2
SIDE = 224


def photographs(count: int) -> list[Sample]:
    """JPEG files of 224 x 224 pixels, cut at random places from the two photographs that scikit-learn ships."""
    pictures = [
        import_module("PIL.Image").fromarray(one)
        for one in import_module("sklearn.datasets").load_sample_images().images
    ]
    draw = random.Random(0)  # noqa: S311 -- no secret
    answer = []
    for number in range(count):
        picture = pictures[number % len(pictures)]
        left, top = draw.randrange(picture.width - SIDE), draw.randrange(picture.height - SIDE)
        raw = io.BytesIO()
        picture.crop((left, top, left + SIDE, top + SIDE)).save(raw, "JPEG", quality=90)
        answer.append((number, raw.getvalue()))
    return answer


def compare(names: list[str], count: int, repetitions: int) -> dict[str, Any]:
    """For each reader, cold and warm, and number of workers: samples a second of each epoch, and their median.

    The repetitions of the readers take turns, each in a process of its own, so that what else the machine does falls on
    all alike.
    """
    found: dict[str, Any] = {name: {} for name in names}
    with scratch() as place:
        samples = photographs(count)
        for name in names:
            PEERS[name]().write(samples, Path(place) / name, SHARDS)
        for _ in range(repetitions):
            for name in names:
                command = [
                    sys.executable,
                    "-W",
                    "ignore",
                    "-m",
                    "bench.data.speed",
                    name,
                    str(Path(place) / name),
                    str(count),
                ]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    found[name] = {"fails": done.stderr.strip().splitlines()[-1][:300]}
                    continue
                for key, rates in json.loads(done.stdout.strip().splitlines()[-1]).items():
                    found[name].setdefault(key, []).extend(rates)
    return {
        "images": count,
        "mean_bytes": round(statistics.mean(len(image) for _, image in samples)),
        "samples_per_second": {
            name: {
                key: {"median": round(statistics.median(rates)), "all": rates} if isinstance(rates, list) else rates
                for key, rates in of_name.items()
            }
            for name, of_name in found.items()
        },
    }


def measure(name: str, folder: Path, count: int) -> dict[str, list[int]]:
    """One repetition of one reader: each epoch's samples a second."""
    rates: dict[str, list[int]] = {}
    for workers in WORKERS:
        cold = rates[f"cold, {workers} workers"] = []
        warm = rates[f"warm, {workers} workers"] = []
        for _ in range(CACHES):
            for path in filter(Path.is_file, folder.rglob("*")):
                _forget(path)
            with scratch() as cache:
                stream = PEERS[name]().read(Task(folder, batch_size=BATCH, workers=workers, cache=Path(cache)))
                cold.append(_rate(stream, count, is_warm=False))
                warm += [_rate(stream, count, is_warm=True) for _ in range(WARM_EPOCHS)]
                del stream  # and with it the workers
    return rates


def _rate(stream: Any, count: int, *, is_warm: bool) -> int:
    """Samples a second of an epoch; a warm one is timed from its first batch on: starting workers is not reading."""
    began = time.perf_counter()
    batches = iter(stream)
    seen = first = len(next(batches)[0])
    if is_warm:
        began = time.perf_counter()
    else:
        first = 0
    for _, images in batches:
        seen += sum(image[:2] == b"\xff\xd8" for image in images)
    took = time.perf_counter() - began
    if seen != count:
        raise RuntimeError(f"{seen} samples of {count}")
    return round((seen - first) / took)


def _forget(path: Path) -> None:
    """Drop a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))) + "\n")
