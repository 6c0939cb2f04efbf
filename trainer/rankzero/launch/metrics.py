"""/metrics: the status page as Prometheus reads it. Every pod serves it; figures of the group come from rank 0's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

PROGRESS = (
    ("step", "step", "Last optimizer step"),
    ("total_steps", "total_steps", "Optimizer steps of the whole run"),
    ("loss", "loss", "Loss of the last step on rank 0"),
    ("step_seconds", "step_seconds", "Median time of the last steps"),
    ("save_seconds", "checkpoint_seconds", "Time of the last checkpoint"),
)
"""Key of the heartbeat, name of the metric, what it is."""


def render(status: dict[str, Any]) -> bytes:
    """The document of /status in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Page(status))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """All families that the document has figures for."""
        status, group = self._status, self._status.get("group", {})
        yield gauge("joined", "1 while this pod is part of the group", float(status["joined"]))
        yield gauge("spare_memory_bytes", "Memory of the warm spare", float(status["spare_memory"]))
        if not group:
            return
        yield gauge("attempt", "Number of the present attempt", float(group["attempt"]))
        yield gauge("absent_nodes", "Node ranks that are not here", float(len(group["absent"])))
        yield from self._progress(group["progress"])
        yield by_label(
            "rank_still_seconds", "Seconds since a rank's last sign of progress", "rank", _of_ranks(group, "still")
        )
        yield by_label("rank_step", "Last optimizer step of a rank", "rank", _of_ranks(group, "step"))
        own = "Median time of a rank's own part of a step, without the wait for others"
        yield by_label("rank_own_seconds", own, "rank", _of_ranks(group, "own_seconds"))
        yield by_label("time_seconds", "Where the run's time went", "bucket", group["time_s"])
        yield by_label("lost_seconds", "Time that failures have cost", "cause", group["lost_s"])
        yield gauge("goodput_ratio", "Share of time spent in steps that were kept", group["goodput"])
        yield self._attempts(group)
        yield self._samples(group)

    @staticmethod
    def _samples(group: dict[str, Any]) -> Metric:
        used = sum(one.get("samples", 0) for one in group["attempts"])
        text = "Samples used by all ranks, repeated ones included, as rank 0 counts them"
        return CounterMetricFamily("rankzero_samples", text, value=used)

    @staticmethod
    def _progress(progress: dict[str, Any]) -> Iterator[Metric]:
        for key, name, text in PROGRESS:
            if progress.get(key) is not None:
                yield gauge(name, text, float(progress[key]))

    @staticmethod
    def _attempts(group: dict[str, Any]) -> Metric:
        family = CounterMetricFamily("rankzero_attempts", "Attempts that have ended, by cause", labels=["cause"])
        ended = Counter(one["kind"] or "none" for one in group["attempts"] if "ended" in one)
        for cause, count in sorted(ended.items()):
            family.add_metric([cause], count)
        return family


def gauge(name: str, text: str, value: float) -> Metric:
    """One figure."""
    return GaugeMetricFamily(f"rankzero_{name}", text, value=value)


def by_label(name: str, text: str, label: str, values: dict[str, float]) -> Metric:
    """One figure for each value of a label."""
    family = GaugeMetricFamily(f"rankzero_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key.replace(" ", "_")], value)
    return family


def _of_ranks(group: dict[str, Any], key: str) -> dict[str, float]:
    return {str(beat["rank"]): beat[key] for beat in group["ranks"]}
