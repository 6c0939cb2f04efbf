"""IDX files, the format in which MNIST and its relatives come."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import torch
from torch import Tensor

from rankzero.errors import ConfigError, DataError


def load_pair(samples: Path, labels: Path) -> tuple[Tensor, Tensor]:
    """Samples and their labels. Raises as :func:`load`, and :class:`DataError` where there are not as many of each."""
    first, second = load(samples), load(labels)
    if len(first) != len(second):
        raise DataError(
            f"{samples} has {len(first)} samples and {labels.name} {len(second)} labels",
            hint="fetch or convert them again",
        )
    return first, second


def load(path: Path) -> Tensor:
    """An IDX file (optionally gzipped) of bytes, not empty, as a tensor of its shape and type uint8. Any rank.

    Raises :class:`ConfigError` where there is none, which trying again cannot mend, and :class:`DataError` where it
    cannot be read or is damaged.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="set train.data to the folder") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}", hint="fetch or convert it again") from error
    dimensions = raw[3] if len(raw) > 3 and raw.startswith(b"\0\0\x08") else 0
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    values = bytearray(raw[4 + 4 * dimensions :])
    if not values or len(values) != math.prod(shape):
        raise DataError(f"{path} is not a whole IDX file of bytes", hint="fetch or convert it again")
    return torch.frombuffer(values, dtype=torch.uint8).view(shape)
