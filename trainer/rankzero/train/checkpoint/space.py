"""Room on the checkpoint volume."""

from __future__ import annotations

import shutil
from pathlib import Path

ALERT_SHARE = 0.8
"""From this share of the volume on, people are told each time that it has become fuller."""
MARGIN = 1.05
"""A checkpoint may be this much larger than the last one."""


def refusal(folder: Path, last_size: int) -> str:
    """Why no checkpoint of about ``last_size`` bytes (0: unknown) fits now; an empty text where it does.

    Raises OSError. A save that cannot fit is not begun: a full volume would stop others that write to it, too.
    """
    free = shutil.disk_usage(folder).free
    if free >= last_size * MARGIN:
        return ""
    return f"{human(free)} are free on {folder}, and the last one took {human(last_size)}"


class Alert:
    """Tells when the volume fills up."""

    def __init__(self) -> None:
        self._told = ALERT_SHARE

    def text(self, folder: Path) -> str:
        """What to tell people now; mostly nothing. Raises OSError."""
        usage = shutil.disk_usage(folder)
        share = usage.used / max(usage.used + usage.free, 1)
        if share < self._told:
            if share < ALERT_SHARE:
                self._told = ALERT_SHARE
            return ""
        self._told = share + 0.05
        return f"{share:.0%} of the volume of {folder} are used, {human(usage.free)} are free"


def human(size: float) -> str:
    """Bytes for people: ``1.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
