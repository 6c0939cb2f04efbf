"""A drill that cannot go on: it says why, keeps what can be had, puts right what it broke, and costs no other drill.

kubectl and helm are programs here that answer for a cluster.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from bench import result_file
from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from rankzero.errors import ClusterError, ConfigError
from scripts.command import CommandError
from scripts.demo.follow import Patient
from scripts.drill import __main__ as command
from scripts.drill import faults, node_faults, results, runner
from scripts.drill.evidence import _reader
from scripts.drill.ground import Ground
from scripts.drill.plan import Drill
from scripts.drill.release import NAME, Release
from scripts.drill.scene import Scene
from scripts.stages import Stages
from tests.cluster.fake_api import serve

DRILL = Drill(name="test", done="nothing", expected="nothing", within=1)
MakeGround = Callable[..., Ground]
VERSION = (
    "major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform",
)  # fmt: skip


@pytest.fixture
def make_ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeGround]:
    """A cluster whose kubectl answers by a piece of shell and writes down what it is asked."""
    monkeypatch.setattr(runner, "FOLDER", tmp_path / "evidence")
    monkeypatch.setattr(results, "LATEST", tmp_path / "results.json")
    monkeypatch.setattr(result_file, "FOLDER", tmp_path / "kept")
    kubeconfig = tmp_path / "kubeconfig"

    def make(answers: str = "true") -> Ground:
        program = tmp_path / "kubectl"
        program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n{answers}\n')
        program.chmod(0o755)
        return Ground(str(kubeconfig), program, program, "registry.example.com/trainer:1", (), is_lab=False)

    with serve() as api:
        version = dict.fromkeys(VERSION, "1")
        api.answers["/version/"] = (200, version)
        cluster = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{api.port}"}}
        context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
        document = {"clusters": [cluster], "users": [{"name": "x", "user": {}}], "contexts": [context]}
        kubeconfig.write_text(yaml.safe_dump({**document, "current-context": "x"}))
        yield make


def asked(folder: Path) -> str:
    return (folder / "asked").read_text()


def scene(ground: Ground, **values: Any) -> Scene:
    release = Release(ground, "test", values)
    stages = Stages(Console(file=io.StringIO()))
    return Scene(release, Patient(Run(connect(ground.kubeconfig), release.namespace, NAME), stages.say), stages)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ClusterError("no such luck"), "no such luck"),
        (KeyError("ended"), "a bug of the drill"),
        (StopIteration(), "a bug"),
    ],
)
def test_what_keeps_a_drill_from_taking_place_is_its_shortfall_and_its_evidence_is_kept(
    error: Exception, said: str, make_ground: MakeGround, tmp_path: Path
) -> None:
    ground = make_ground("echo answer")

    def fail(_: Scene) -> None:
        raise error

    verdict = command.run(replace(DRILL, prepare=fail), ground, Stages(Console(file=io.StringIO())))
    [shortfall] = verdict.shortfalls
    assert said in shortfall
    kept = runner.evidence_folder(DRILL, ground)
    assert {path.name for path in kept.iterdir()} == {"pods.yaml", "events.txt", "logs.txt", "logs-previous.txt"}
    assert asked(tmp_path).index(" get events") < asked(tmp_path).index(" delete namespace")
    assert json.loads(results.LATEST.read_text())["drills"] == {}  # it is none of the catalogue


def test_an_undo_that_fails_is_said_hides_nothing_and_keeps_no_other_from_being_done(make_ground: MakeGround) -> None:
    done: list[str] = []

    def fail() -> None:
        raise CommandError("umount: busy")

    def prepare(scene: Scene) -> None:
        scene.later(lambda: done.append("first made, last undone"))
        scene.later(fail)
        raise ClusterError("what came first")

    verdict = command.run(replace(DRILL, prepare=prepare), make_ground(), Stages(Console(file=io.StringIO())))
    assert "what came first" in verdict.shortfalls[0]
    assert done == ["first made, last undone"]
    one = scene(make_ground())
    one.later(fail)
    one.undo_all()
    assert one.complaints == ["it could not be put right: umount: busy"]


def test_runs_with_another_chart_or_other_values_are_not_compared(make_ground: MakeGround, tmp_path: Path) -> None:
    plain = make_ground()
    values = tmp_path / "values.yaml"
    values.write_text("train: {}\n")
    other = replace(plain, values=(str(values),))
    folder = runner.evidence_folder(DRILL, other)
    assert folder != runner.evidence_folder(DRILL, plain)
    values.write_text("train: {batchSize: 1}\n")
    assert folder != runner.evidence_folder(DRILL, other)
    sharded = replace(plain, strategy="fsdp")
    assert runner.evidence_folder(DRILL, sharded) != runner.evidence_folder(DRILL, plain)


def test_an_eviction_that_the_budget_forbids_is_told_from_one_that_goes_wrong(make_ground: MakeGround) -> None:
    assert faults.evict(scene(make_ground()), 0)
    refusal = "echo 'Error from server (TooManyRequests): it would violate the budget' >&2; exit 1"
    assert not faults.evict(scene(make_ground(refusal)), 0)
    with pytest.raises(ClusterError, match="was refused while the group was whole"):
        faults.evict_pod(1)(scene(make_ground(refusal)))
    with pytest.raises(CommandError, match="NotFound"):
        faults.evict(scene(make_ground("echo 'Error from server (NotFound)' >&2; exit 1")), 0)


def test_a_second_eviction_must_be_refused_while_the_first_pod_is_away(make_ground: MakeGround) -> None:
    with pytest.raises(ClusterError, match="drill-0 was evicted while drill-1 was away"):
        faults.evict_both_pods(scene(make_ground()))


def test_a_save_that_was_whole_before_the_kill_is_followed_by_another_try(
    make_ground: MakeGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempt 2 goes on from step 30, at which attempt 1 was killed; attempt 3 does not from that of attempt 2."""
    one = scene(make_ground())
    struck = iter([30, 40])
    attempts = iter([1, 2, 2, 2, 3, 3])
    resumed = {1: 0, 2: 30, 3: 30}
    monkeypatch.setattr(one.release, "in_pod", lambda *_: str(next(struck)))

    def group() -> dict[str, Any]:
        attempt = next(attempts)
        return {"attempt": attempt, "progress": {"attempt": attempt, "resumed_from": resumed[attempt]}}

    monkeypatch.setattr(one, "group", group)
    faults.kill_in_save(one)
    assert next(struck, None) is None


def test_the_network_of_a_whole_machine_is_never_cut(make_ground: MakeGround) -> None:
    with pytest.raises(ConfigError, match="on the network of its node"):
        node_faults.cut_network(1, None)(scene(make_ground("echo true | tr -d '\\n'")))
    assert all("eth0" in rule for rule in (*node_faults.TO_AND_FROM_OTHERS, *node_faults.THROUGH_THE_NODE))


def test_a_pod_without_a_node_is_an_error_in_words(make_ground: MakeGround, monkeypatch: pytest.MonkeyPatch) -> None:
    one = scene(make_ground())
    monkeypatch.setattr(one.run, "pods", list)
    with pytest.raises(ClusterError, match="drill-1 runs on no node"):
        one.node_of(1)


@pytest.mark.parametrize("on_the_host", [True, False])
def test_a_namespace_for_the_host_network_is_labelled_for_it(
    on_the_host: bool, make_ground: MakeGround, tmp_path: Path
) -> None:
    ground = make_ground(f"cat > {tmp_path}/sent")
    scene(ground, network={"hostNetwork": on_the_host}).release.create_namespace()
    labels = json.loads((tmp_path / "sent").read_text())["metadata"]["labels"]
    assert labels == ({"pod-security.kubernetes.io/enforce": "privileged"} if on_the_host else {})


def test_the_reader_is_let_in_where_the_run_was() -> None:
    same = {
        "imagePullSecrets": [{"name": "secret"}],
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"pool": "training"},
        "securityContext": {"runAsUser": 5000},
    }
    spec = _reader({**same, "containers": [{"image": "registry.example.com/trainer:1"}], "hostNetwork": True})["spec"]
    assert {key: spec[key] for key in same} == same
    assert spec["containers"][0]["image"] == "registry.example.com/trainer:1"
    assert "hostNetwork" not in spec
