"""How the run ended, as the Event carries it: Kubernetes takes 256 KiB of annotations, and refuses the Event above."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

MOST = 128 * 1024
"""Bytes; an Event that is as large as it may be is a burden for whoever lists them."""
MOST_ATTEMPTS = 20


def annotation(outcome: dict[str, Any]) -> str:
    """The document of outcome.json in one line, with its last attempts only.

    ``earlier_attempts`` counts the others by kind of cause; outcome.json on the checkpoint volume has them all.
    """
    attempts = outcome["attempts"]
    line = ""
    for kept in range(min(len(attempts), MOST_ATTEMPTS), -1, -1):
        left_out = len(attempts) - kept
        document = {
            **outcome,
            "attempts": attempts[left_out:],
            "earlier_attempts": dict(Counter(attempt["kind"] for attempt in attempts[:left_out])),
        }
        line = json.dumps(document, ensure_ascii=False)
        if len(line.encode(errors="replace")) <= MOST:
            break
    return line
