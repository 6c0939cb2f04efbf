"""What several drills demand alike: words of records, the fate of pods, the times that are aimed at."""

from __future__ import annotations

from scripts.drill.plan import Fate, Record

STRUCK_POD = r"drill-1 \(node rank 1\)"
LEAVING = Record("stopped", rf"{STRUCK_POD} is leaving: its pod is being stopped")
RANK_0_LEAVING = Record("stopped", r"drill-0 \(node rank 0\) is leaving: its pod is being stopped")
KILLED_FROM_OUTSIDE = Record(
    "worker", r"rank 1 \(node rank 1\) was ended by SIGKILL: killed from outside, not for memory"
)
NEAR_ITS_LIMIT = r"memory was at (9\d|100) % of"
DIED = r"its container ended by itself"
ENDED_BY_ITSELF = Record(
    "container", rf"{STRUCK_POD} (closed its connection|started again): {DIED}(?!; {NEAR_ITS_LIMIT})"
)
RANK_0_ENDED_BY_ITSELF = Record(
    "container", rf"^rank 0's container ended by itself and was started again(?!; {NEAR_ITS_LIMIT})"
)
STEP_25_FAILED = Record("worker", r"rank 1 \(node rank 1\) ended with status 1: .*a drill made step 25 fail")
BOTH_KEPT = {0: Fate.KEPT, 1: Fate.KEPT}
POD_1_RESTARTED = {0: Fate.KEPT, 1: Fate.RESTARTED}
POD_0_RESTARTED = {0: Fate.RESTARTED, 1: Fate.KEPT}
POD_1_REPLACED = {0: Fate.KEPT, 1: Fate.REPLACED}
POD_0_REPLACED = {0: Fate.REPLACED, 1: Fate.KEPT}
BOTH_REPLACED = {0: Fate.REPLACED, 1: Fate.REPLACED}
WORKER_TARGET = 1.5
POD_TARGET = 10.0
"""Seconds to the next step that the product aims at, without a fault on the machines below."""
