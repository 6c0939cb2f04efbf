"""What is timed: from each event to the next optimizer step that is printed."""

from __future__ import annotations

INSTALL, WORKER, POD_1, POD_0 = "install", "worker_killed", "pod_1_deleted", "pod_0_deleted"
EVENTS = {
    INSTALL: "install or apply, to the first step",
    WORKER: "a worker process killed (SIGKILL, on pod 1), to the next step",
    POD_1: "pod 1 deleted, to the next step",
    POD_0: "pod 0 deleted, to the next step",
}
