"""One drill from its installation to its removal."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from rankzero.errors import ConfigError
from scripts.cache import REPO
from scripts.demo.follow import Patient
from scripts.drill.evidence import Evidence, fetch, rescue
from scripts.drill.ground import Ground
from scripts.drill.judge import Story, Verdict, judge
from scripts.drill.plan import Drill, Power, nothing
from scripts.drill.release import CHART, NAME, RUN_ID, VALUES, Release
from scripts.drill.scene import Scene
from scripts.image.reference import split
from scripts.stages import Stages

FOLDER = REPO / "build/drills"
FIRST_STEP_WITHIN = 600.0
"""The image may have to be pulled first."""
RELEASED_WITHIN = 120.0


def perform(drill: Drill, ground: Ground, undisturbed: Evidence | None, stages: Stages) -> Verdict:
    """Run one drill and judge it; without ``undisturbed`` it is itself that run.

    Raises :class:`RankzeroError` where the run did not come to the point that the drill is about.
    """
    if drill.power is Power.LAB and not ground.is_lab:
        raise ConfigError(
            f"the drill {drill.name} changes the machines below the cluster, so it is for the local cluster only",
            hint=f"`make drill NAME={drill.name}` without CLUSTER=existing",
        )
    folder = evidence_folder(drill, ground)
    shutil.rmtree(folder, ignore_errors=True)
    with _scene(drill, ground, stages) as scene:
        try:
            story = _follow(drill, scene)
            found = fetch(scene.release, folder)
        except BaseException:
            rescue(scene.release, folder)
            raise
    verdict = judge(drill, story, found, undisturbed or found)
    return replace(verdict, shortfalls=(*verdict.shortfalls, *scene.complaints))


def evidence_folder(drill: Drill, ground: Ground) -> Path:
    """Where the records of a drill's last run with this image, chart and values are kept."""
    _, tag, digest = split(ground.image)
    return FOLDER / f"{tag or digest.replace(':', '-')}-{_settings(ground)}" / drill.name


def _settings(ground: Ground) -> str:
    """Changes with the chart and the values that all drills share: runs with others cannot be compared.

    Nor can one that is sharded with one that is not: its sums are taken in another order.
    """
    chart = sorted(path for path in (REPO / CHART).rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in (*chart, REPO / VALUES, *map(Path, ground.values)):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()[:8]}-{ground.strategy}"


@contextmanager
def _scene(drill: Drill, ground: Ground, stages: Stages) -> Iterator[Scene]:
    plain = yaml.safe_load((REPO / VALUES).read_text(encoding="utf-8"))
    launch = {"args": [*plain["launch"]["args"], *drill.arguments]}
    values = {
        **drill.values,
        "run": {"id": RUN_ID},
        "launch": {**launch, **drill.values.get("launch", {})},
        "train": {"parallel": {"strategy": ground.strategy}},
    }
    release = Release(ground, drill.name, values)
    run = Patient(Run(connect(ground.kubeconfig), release.namespace, NAME), stages.say)
    scene = Scene(release, run, stages)
    with ExitStack() as stack:
        stack.callback(release.remove)
        stack.callback(scene.undo_all)
        release.create_namespace()
        yield scene


def _follow(drill: Drill, scene: Scene) -> Story:
    drill.prepare(scene)
    installed = time.time()
    scene.release.install()
    if drill.disturb is not nothing:
        if drill.at:
            scene.wait_for_step(drill.at, within=FIRST_STEP_WITHIN)
            scene.note_pods()
        scene.strike_now()
        drill.disturb(scene)
    _until_ended(scene)
    return Story(
        installed=installed,
        struck=scene.struck,
        over=scene.over,
        released=scene.run.until_released(RELEASED_WITHIN),
        other_results=tuple(scene.other_results),
        before=scene.before,
        after=scene.after,
    )


def _until_ended(scene: Scene) -> None:
    def has_ended() -> bool:
        group = scene.group()
        if group.get("state") == "running":
            scene.note_pods()
        if progress := group.get("progress"):
            scene.detail(f"attempt {group['attempt']} {group['state']}, step {progress.get('step', 0)}")
        return scene.run.outcome(RUN_ID) is not None

    scene.wait_until(has_ended, what="the end of the run", within=FIRST_STEP_WITHIN)
