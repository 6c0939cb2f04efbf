"""Readers of packed samples side by side; writes bench/results/data.json.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install -r bench/data/requirements.txt
    PYTHONPATH=trainer:. /tmp/peers/bin/python -m bench.data [--only exactness|speed|dependencies] [--peers NAME,...]

What is left out keeps the figures that the file has. Where PyTorch is installed already, a file ``torch.pth`` in the
new environment's site-packages with the path of its own spares installing it once more.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from typing import Any

from bench import result_file
from bench.data import dependencies, exactness, speed, summary
from bench.data.peers import PEERS

PARTS = ("exactness", "dependencies", "speed")


def main() -> None:
    """Measure, compare with the targets, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--peers", default=",".join(PEERS), help="with commas between (default: all)")
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    names = options.peers.split(",")
    document: dict[str, Any] = result_file.read("data") or {}
    document |= {"machine": result_file.machine(), "versions": _versions()}
    parts = [options.only] if options.only else PARTS
    for part, measure in {"exactness": exactness.compare, "dependencies": dependencies.of}.items():
        if part in parts:
            for name in names:
                known = document.get(part, {}) | {name: measure(name)}
                document[part] = {name: known[name] for name in PEERS if name in known}
                result_file.write("data", document)
    if "speed" in parts:
        document["speed"] = speed.compare(names, options.images, options.repetitions)
        document["targets"] = summary.targets(document["speed"]["samples_per_second"])
    print(result_file.write("data", document))  # noqa: T201


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", *PEERS) if name != "rankzero"}


if __name__ == "__main__":
    main()
