"""Text that others wrote, fit for one line of the log: nobody forges a line that the launcher never said."""

from __future__ import annotations

LONGEST = 4096
"""Characters of one line."""


def one_line(text: str, longest: int = LONGEST) -> str:
    r"""At most ``longest`` characters of the text; what cannot be printed as Python writes it, a line end as ``\n``."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:longest])[:longest]
