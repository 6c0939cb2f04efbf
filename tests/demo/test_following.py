"""The demo watches a run through a real client and real sockets; the API's answers are the test's."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rankzero.cluster.run import Run
from rankzero.errors import ClusterError, UnreachableError
from scripts.demo import experiment, follow, report
from scripts.demo.road import Ground
from scripts.stages import Stages
from tests.cluster.fake_api import HANG_UP, NAME, NAMESPACE, FakeApi, outcome, serve
from tests.waiting import until

GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:546] Connection closed by peer [10.1.0.2]"
"""What gloo says; to rich it looks like a closing tag."""


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serve() as served:
        yield served


@pytest.fixture(params=[True, False], ids=["terminal", "plain"])
def console(request: pytest.FixtureRequest) -> Console:
    return Console(file=io.StringIO(), force_terminal=request.param, highlight=False, soft_wrap=True)


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def run_of(api: FakeApi) -> Run:
    return Run(api.client(), NAMESPACE, NAME)


def test_the_outcome_of_the_run_that_was_installed_ends_it_whatever_the_clocks_say(
    api: FakeApi, console: Console
) -> None:
    """An earlier run of the release has an Event too, younger by the clock of its pod."""
    api.put_workload(replicas=0, run_id="b")
    api.put_events((150, outcome("succeeded", run_id="b")), (9e9, outcome("failed", run_id="a")))
    story = follow.follow(run_of(api), "b", console)
    assert (story.outcome["run_id"], story.outcome["state"]) == ("b", "succeeded")
    assert story.pods_gone


@pytest.mark.parametrize("blip", [(HANG_UP, None), (500, {}), (503, {})])
def test_a_short_silence_of_the_api_is_said_and_waited_out(
    api: FakeApi, console: Console, monkeypatch: pytest.MonkeyPatch, blip: tuple[int, Any]
) -> None:
    monkeypatch.setattr(follow, "POLL", 0.01)
    api.put_workload(replicas=0)
    api.put_events((150, outcome("succeeded")))
    api.next = [(200, {"items": []}), blip, blip, blip]  # no rank 0 that has a page, then its pods three times
    assert follow.follow(run_of(api), "a", console).outcome["state"] == "succeeded"
    assert output(console).count("; asking again for 60 s") == 1


def test_a_long_silence_of_the_api_ends_the_demo_with_a_sentence(
    api: FakeApi, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "API_SILENT_FOR", 0.05)
    monkeypatch.setattr(follow, "POLL", 0.01)
    api.answers.clear()
    api.next = [(HANG_UP, None)] * 1000
    with pytest.raises(UnreachableError, match="does not answer") as caught:
        follow.follow(run_of(api), "a", console)
    assert caught.value.hint


def test_a_refusal_is_not_waited_out(api: FakeApi, console: Console) -> None:
    api.next = [(403, {})]
    with pytest.raises(ClusterError, match="403"):
        follow.follow(run_of(api), "a", console)
    assert "asking again" not in output(console)


def ground() -> Ground:
    """A cluster whose helm does nothing and says that all is well."""
    return Ground(kubeconfig=None, helm=Path("/bin/true"), image="a/b:1", gpus_per_pod=0, shared=None)


def test_pods_of_an_earlier_demo_that_do_not_go_are_named(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "GONE_WITHIN", 0.05)
    monkeypatch.setattr(experiment, "POLL", 0.01)
    api.put_pods(1, 1)
    with pytest.raises(ClusterError, match=r"are still there .*: mnist-0, mnist-1") as caught:
        experiment.uninstall(ground(), run_of(api))
    assert "delete pod --force mnist-0 mnist-1" in caught.value.hint


def test_an_earlier_demo_that_has_gone_is_no_error(api: FakeApi) -> None:
    experiment.uninstall(ground(), run_of(api))


def test_what_a_failed_run_said_is_shown_as_it_is(console: Console, tmp_path: Path) -> None:
    failed = {**outcome("failed"), "reason": GLOO}
    story = follow.Story(outcome=failed, deleted_pod="mnist-1")
    found = report.Report.of(story, {"a [/b] stage": 1.0}, installed=0, began=0, ground=ground(), run_id="a")
    report.show(found, tmp_path / "[/report].json", console)
    shown = output(console)
    for text in (GLOO, "a [/b] stage", "[/report].json"):
        assert text in shown


def test_attempts_that_the_event_leaves_out_are_counted_and_not_guessed_at() -> None:
    attempt = {"attempt": 30, "first_step": 5, "first_step_time": 9.0, "last_step": 9, "resumed_from": 4}
    ended = {**outcome("succeeded"), "earlier_attempts": {"worker": 29}, "attempts": [attempt]}
    ended["result"] = {"test_accuracy": None}  # NaN, as JSON has it
    story = follow.Story(outcome=ended, deleted_pod="mnist-1", attempt_at_deletion=1)
    found = report.Report.of(story, {}, installed=0, began=0, ground=ground(), run_id="a")
    assert (found.attempts, found.install_to_first_step_s, found.kill_to_next_step_s) == (30, None, None)
    assert any(line.startswith("test accuracy none") for line in found.shortfalls)
    assert any(line.startswith("of the first 29 attempts only claim ") for line in found.shortfalls)


def test_what_the_status_page_says_is_shown_as_it_is(console: Console) -> None:
    group = {"state": "running [/x]", "attempt": 1}
    with follow._Display(console) as display:
        display.show(group, {"step": 1, "total_steps": 2, "loss": 0.5})
        display.say(GLOO)
    assert GLOO in output(console)
    assert "attempt 1 running [/x]" in output(console)


def fail(stages: Stages) -> None:
    with stages("bad [/b]"):
        raise ValueError("reason")


def test_a_stage_may_have_any_name_and_detail(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """A detail is often the last line of another program; the thread that shows it must not die of it."""
    monkeypatch.setattr("scripts.stages.STILL_WORKING_EVERY", 0.01)
    stages = Stages(console)
    with stages("good [/c]"):
        stages.detail("at [/d]")
        until(lambda: "at [/d]" in output(console), what="the detail beside the clock")
    with pytest.raises(ValueError, match="reason"):
        fail(stages)
    assert "bad [/b]" in output(console)
    assert set(stages.seconds) == {"good [/c]", "bad [/b]"}
