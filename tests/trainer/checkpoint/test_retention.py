"""Which checkpoints stay: never is the last good one deleted (known failure A23)."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankzero import contract
from rankzero.train.checkpoint import Checkpoints
from rankzero.train.checkpoint.retention import kept
from tests.trainer.checkpoint.scene import save_steps, tracked

STEPS = st.integers(1, 200)
RULES = st.fixed_dictionaries(
    {
        "last": st.integers(1, 6),
        "every": st.integers(0, 20),
        "best": st.sampled_from(["none", "lowest", "highest"]),
        "metrics": st.dictionaries(STEPS, st.floats(allow_infinity=False)),
    }
)


@given(st.sets(STEPS), STEPS, RULES)
def test_what_was_just_saved_and_the_last_ones_before_it_stay(steps: set[int], saved: int, rules: dict) -> None:  # type: ignore[type-arg]
    stay = kept(steps, saved, **rules)
    past = sorted(step for step in {*steps, saved} if step <= saved)
    assert saved in stay
    assert stay >= set(past[-rules["last"] :])
    assert stay <= set(past)


@given(st.sets(STEPS), STEPS, RULES)
def test_nothing_stays_without_a_reason(steps: set[int], saved: int, rules: dict) -> None:  # type: ignore[type-arg]
    stay = kept(steps, saved, **rules)
    multiples = {step for step in stay if rules["every"] and step % rules["every"] == 0}
    best = 0 if rules["best"] == "none" else 1
    assert len(stay - multiples) <= rules["last"] + best


@given(st.sets(STEPS, min_size=1), RULES)
def test_the_best_one_stays(steps: set[int], rules: dict) -> None:  # type: ignore[type-arg]
    saved = max(steps)
    known = {step: metric for step, metric in rules["metrics"].items() if step in steps and not math.isnan(metric)}
    stay = kept(steps, saved, **rules)
    if known and rules["best"] != "none":
        target = (min if rules["best"] == "lowest" else max)(known.values())
        assert any(known.get(step) == target for step in stay)


STORY = st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), max_size=30)


@given(STORY, st.integers(1, 3), st.integers(0, 8))
def test_in_any_story_of_saves_damages_and_resumes_a_good_one_is_left(
    story: list[tuple[int, bool, bool]], last: int, every: int
) -> None:
    """A run trains on, saves, is damaged, fails, and goes on from the newest good one, over and over."""
    good: dict[int, bool] = {}
    step = 0
    for steps, damaged, fails in story:
        step += steps
        good[step] = True
        stay = kept(good, step, last=last, every=every)
        good = {kept_step: fine for kept_step, fine in good.items() if kept_step in stay}
        assert good[step]
        assert max(good) == step  # so that a resume finds it first
        if damaged:
            good[step] = False
        if fails:
            step = max((kept_step for kept_step, fine in good.items() if fine), default=0)


def steps_of(checkpoints: Checkpoints) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in checkpoints]


def test_multiples_stay_beside_the_last_ones(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 5, 10, 15, 20, 25, 30, 35, keep=1, keep_every=10)
    assert steps_of(checkpoints) == [35, 30, 20, 10]


def test_the_best_by_the_metric_stays_and_a_damaged_manifest_is_the_best_of_nothing(tmp_path: Path) -> None:
    checkpoints, _ = tracked(tmp_path, keep=1, best="lowest")
    for step, metric in [(1, 0.5), (2, 0.3), (3, 0.4), (4, math.nan)]:
        checkpoints.save(step, metric=metric)
    assert steps_of(checkpoints) == [4, 2]
    (checkpoints.layout.path(2) / "MANIFEST.json").write_text("[]")
    checkpoints.save(5, metric=0.9)
    assert steps_of(checkpoints) == [5]


def test_a_checkpoint_that_cannot_be_removed_is_said_and_ends_nothing(tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    checkpoints, _ = tracked(tmp_path, keep=1)
    checkpoints.save(1)

    def refuse(_: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(checkpoints.layout, "remove", refuse)
    assert checkpoints.save(2)
    assert "checkpoint step-0000000001 could not be removed: Operation not permitted" in capsys.readouterr().out


def test_what_people_have_put_beside_them_is_removed_without_following_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint that was moved and linked, or a file of that name, is no reason to complain for ever."""
    checkpoints = save_steps(tmp_path, 1)
    moved = checkpoints.layout.path(1).rename(tmp_path / "moved")
    checkpoints.layout.path(1).symlink_to(moved)
    checkpoints.layout.path(2).touch()
    save_steps(tmp_path, 3, keep=1)
    assert [path.name for path in checkpoints.layout.folder.glob("*step-*")] == ["step-0000000003"]
    assert (moved / contract.MANIFEST_FILE).exists()
    assert "could not be removed" not in capsys.readouterr().out
