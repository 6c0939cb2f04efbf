"""Upgrades, rollbacks and comparisons of real releases on the real API, by Helm itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from rankzero import contract
from rankzero.cluster.api import connect
from rankzero.cluster.run import Run
from scripts import command
from scripts.cache import REPO
from scripts.command import CommandError
from scripts.drill import ground as grounds
from scripts.drill.ground import Ground
from scripts.drill.release import CLAIM, NAME, Release
from scripts.generate import upgrades
from scripts.lab import surroundings
from scripts.stages import Stages
from tests.lab import judgements
from tests.lab.conftest import Namespace
from tests.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900, func_only=True)]

ENDLESS = {"launch": {"args": ["--steps", "1000000", "--pace", "0.1"]}}
TRAINS_WITHIN = 200.0


@pytest.fixture(scope="module")
def ground(lab: None) -> Ground:  # noqa: ARG001
    """The local cluster with an image of the present code."""
    return grounds.local(Stages(), "", ())


@contextmanager
def installed(ground: Ground, values: Mapping[str, Any] = ENDLESS) -> Iterator[Release]:
    """A release, by default one that trains without end."""
    release = Release(ground, "upgrade", values)
    release.create_namespace()
    try:
        release.install()
        yield release
    finally:
        release.remove()
        # The next test must not meet this one's pods on a node.
        release.kubectl("wait", "--for=delete", "pod", "--all", "--timeout=100s")


class Training:
    """What a release's run does, by rank 0's page."""

    def __init__(self, release: Release) -> None:
        self._run = Run(connect(release.ground.kubeconfig), release.namespace, NAME)

    def uids(self) -> set[str]:
        """The pods that there are."""
        return {pod.uid for pod in self._run.pods()}

    def group(self) -> dict[str, Any]:
        """Empty while rank 0 does not answer."""
        found: dict[str, Any] = (self._run.status() or {}).get("group", {})
        return found

    def step(self) -> int:
        return int(self.group().get("progress", {}).get("step", 0))

    def wait_for_step(self, step: int) -> None:
        until(lambda: self.step() >= step, timeout=TRAINS_WITHIN, what=f"step {step}")

    def wait_for_others_than(self, uids: set[str], *, after_step: int) -> None:
        """Wait until new pods train beyond a step, and see that they have not begun anew."""

        def first_step() -> int:
            now, attempts = self.uids(), self.group().get("attempts") or [{"ended": 0}]
            is_new = len(now) == 2 and not now & uids and "ended" not in attempts[-1]
            return int(attempts[-1].get("first_step", 0)) if is_new else 0

        assert until(first_step, timeout=TRAINS_WITHIN, what="new pods train") > after_step


def needs_operator(base: Mapping[str, Any]) -> bool:
    """Those are judged where their operators run, in test_operators.py and test_gang.py."""
    return base.get("workload.kind") in {"PyTorchJob", "TrainJob"} or base == upgrades.QUEUED


def helm(release: Release, *words: str) -> str:
    return command.run(["helm", *words, "--namespace", release.namespace], env=surroundings.environment(), timeout=300)


def diff(namespace: str, *words: str, **variables: str) -> tuple[int, str]:
    """Status and words of `rankzero diff`."""
    done = subprocess.run(
        [sys.executable, "-m", "rankzero.cli", "diff", *words, "--namespace", namespace],
        cwd=REPO,
        env={**surroundings.environment(), "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def upgraded(namespace: str, setting: str) -> tuple[int, str]:
    return diff(namespace, NAME, "--reset-then-reuse-values", "--set-json", setting)


def test_an_upgrade_a_refused_one_a_rollback_and_a_reinstall_all_go_on_from_the_checkpoints(ground: Ground) -> None:
    """Known failures A13 and A14."""
    with installed(ground) as release:
        training = Training(release)
        training.wait_for_step(12)

        # a setting
        status, said = upgraded(release.namespace, "train.logEverySteps=2")
        assert (status, "restarts the group: StatefulSet drill" in said) == (contract.EXIT_DIFFERENT, True), said
        uids, step = training.uids(), training.step()
        release.upgrade("train.logEverySteps=2")
        training.wait_for_others_than(uids, after_step=step)
        assert diff(release.namespace, f"{NAME}@1", f"{NAME}@2")[0] == contract.EXIT_DIFFERENT
        assert upgraded(release.namespace, "train.logEverySteps=2")[0] == contract.EXIT_OK

        # a size that the claim cannot take
        smaller = 'checkpoints.size="512Mi"'
        status, said = upgraded(release.namespace, smaller)
        assert (status, f"refused: PersistentVolumeClaim {CLAIM}" in said) == (contract.EXIT_NOT_BY_UPGRADE, True), said
        uids = training.uids()
        with pytest.raises(CommandError, match="field can not be less than"):
            release.upgrade("train.logEverySteps=2", smaller)
        training.wait_for_step(training.step() + 10)
        assert training.uids() == uids
        # Revision 3 is Helm's newest, and nowhere but in its records.
        assert diff(release.namespace, NAME, f"{NAME}@2")[0] == contract.EXIT_OK

        # back to the first
        step = training.step()
        helm(release, "rollback", NAME, "1")
        training.wait_for_others_than(uids, after_step=step)
        assert diff(release.namespace, NAME, f"{NAME}@1")[0] == contract.EXIT_OK

        # out and in again
        uids, step = training.uids(), training.step()
        helm(release, "uninstall", NAME, "--wait")
        until(lambda: not training.uids(), timeout=TRAINS_WITHIN, what="the pods are gone")
        assert release.kubectl("get", "pvc", CLAIM, "--output", "name").strip() == f"persistentvolumeclaim/{CLAIM}"
        release.install()
        training.wait_for_others_than(uids, after_step=step)


@pytest.mark.long
def test_an_upgrade_starts_the_pods_of_a_run_that_has_ended_again(ground: Ground) -> None:
    """The launcher has scaled the StatefulSet to 0, which Helm 4's server-side apply must not take for a conflict."""

    def ended() -> int:
        reason = f"reason={contract.EVENT_SUCCEEDED}"
        return len(release.kubectl("get", "events", "--field-selector", reason, "--output", "name").split())

    with installed(ground, {"nodes": 1, "launch": {"args": ["--steps", "5"]}}) as release:
        until(lambda: ended() == 1, timeout=TRAINS_WITHIN, what="the end of the run")
        release.kubectl("wait", "--for=jsonpath={.spec.replicas}=0", f"statefulset/{NAME}", "--timeout=100s")
        release.upgrade('run.id="second"')
        until(lambda: ended() == 2, timeout=TRAINS_WITHIN, what="the end of the second run")


BASES = {str(one.base): one.base for one in upgrades.EXAMPLES if not needs_operator(one.base)}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_the_api_refuses_what_the_guide_says_is_refused_and_nothing_else(
    namespace: Namespace, base: Mapping[str, Any]
) -> None:
    """Known failure A13."""
    judgements.hold(namespace, base)


def test_a_comparison_without_rights_says_which_are_needed(namespace: Namespace) -> None:
    """Helm's records are Secrets."""
    status, said = diff(namespace.name, NAME, f"{NAME}@1", HELM_KUBEASUSER="nobody")
    assert status == 1
    assert "secrets is forbidden" in said
    assert "you need get and list of them" in said
