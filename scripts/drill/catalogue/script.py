"""Errors of the script itself; they are among its arguments."""

from __future__ import annotations

from scripts.drill.catalogue.records import BOTH_KEPT, DIED, NEAR_ITS_LIMIT, STEP_25_FAILED, STRUCK_POD
from scripts.drill.plan import Drill, Ending, Record

DRILLS = (
    Drill(
        name="error-always",
        done="the script raises at step 25 in every attempt",
        expected="the run ends as failed after the second attempt, with the script's status",
        within=30,
        causes=(STEP_25_FAILED,) * 2,
        arguments=("--fail-at", "25", "--fail-rank", "1", "--fail-attempts", "always"),
        ending=Ending("failed", 1, "the same error at the same step twice"),
        quick=True,
    ),
    Drill(
        name="error-once",
        done="the script raises at step 25 in the first attempt",
        expected="the next attempt goes on from the last checkpoint",
        within=15,
        causes=(STEP_25_FAILED,),
        arguments=("--fail-at", "25", "--fail-rank", "1"),
        pods=BOTH_KEPT,
    ),
    Drill(
        name="gpu-memory-error",
        done="one rank raises torch.OutOfMemoryError, as CUDA does",
        expected="the record names the rank and the error; the next attempt goes on",
        within=15,
        causes=(Record("worker", r"rank 0 \(node rank 0\) .*OutOfMemoryError: CUDA out of memory"),),
        arguments=("--fail-at", "25", "--fail-with", "oom"),
        pods=BOTH_KEPT,
    ),
    Drill(
        name="memory-exhausted",
        done="one rank allocates more memory than its pod may have",
        expected="the kernel's kill is recorded as one for memory, with the limit; the next attempt goes on. (Here the "
        "kernel killed one process; that it kills the whole container, as with cgroup v2, was not produced.)",
        within=30,
        causes=(
            Record(
                "worker",
                r"rank 1 \(node rank 1\) .*: killed for memory: limit \d+ MiB",
                instead=Record("container", rf"{STRUCK_POD} .*: {DIED}; {NEAR_ITS_LIMIT}"),
            ),
        ),
        arguments=("--allocate-at", "25", "--allocate", "4096", "--fail-rank", "1"),
        quick=True,
    ),
)
