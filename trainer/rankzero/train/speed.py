"""How fast a run is and where its time goes, between two looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankzero.heartbeat import Beat, Phase


class Speed:
    """Figures since the look before. All ranks together, as this one sees them; shares are of its own time.

    ``flops_per_sample`` are those of the whole model for one sample, forward and backward, ``peak`` FLOP/s of all
    devices of the run together; 0 where either is not known. ``beat`` gives this rank's heartbeat.
    """

    def __init__(self, beat: Callable[[], Beat], *, flops_per_sample: float = 0.0, peak: float = 0.0) -> None:
        self._beat = beat
        self._flops_per_sample = flops_per_sample
        self._peak = peak
        self._tokens = 0
        self._before: tuple[Beat, int] | None = None

    def add(self, tokens: int) -> None:
        """Tokens that all ranks used in a step."""
        self._tokens += tokens

    def look(self) -> dict[str, Any]:
        """The figures; none at the first look, which is that at the first step: it starts and warms up."""
        beat, tokens = self._beat(), self._tokens
        before, self._before = self._before, (beat, tokens)
        if before is None or beat.moved <= before[0].moved or beat.step <= before[0].step:
            return {}
        last, last_tokens = before
        seconds = beat.moved - last.moved  # from the end of a step to that of another one
        samples = (beat.samples - last.samples) / seconds
        figures: dict[str, Any] = {"steps_per_second": (beat.step - last.step) / seconds}
        if samples:
            figures["samples_per_second"] = samples
        if tokens > last_tokens:
            figures["tokens_per_second"] = (tokens - last_tokens) / seconds
        if samples and self._flops_per_sample and self._peak:
            figures["mfu"] = samples * self._flops_per_sample / self._peak
        spent = {phase.label: beat.seconds.get(phase.label, 0) - last.seconds.get(phase.label, 0) for phase in Phase}
        figures["shares"] = {name: round(part / seconds, 4) for name, part in spent.items() if part > 0}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in figures.items()}


def sentence(figures: dict[str, Any]) -> str:
    """For a person: what of the figures one looks at first."""
    if not figures:
        return ""
    parts = [f"{figures['steps_per_second']:.1f} steps/s"]
    for name in ("samples", "tokens"):
        if f"{name}_per_second" in figures:
            parts.append(f"{figures[f'{name}_per_second']:.0f} {name}/s")
    if "mfu" in figures:
        parts.append(f"mfu {figures['mfu']:.1%}")
    parts.append(f"data wait {figures['shares'].get(Phase.DATA.label, 0):.0%}")
    return "  ".join(parts)
