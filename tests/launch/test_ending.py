"""What becomes of the pods when the run has ended: freed, or parked where the launcher has no rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.launch import annotation, ending
from rankzero.launch.causes import POD, WORKER, Cause
from rankzero.launch.ending import Ending
from rankzero.launch.identity import from_environment
from rankzero.launch.kubernetes_api import InCluster
from rankzero.launch.records import Records
from tests.launch.conftest import MakeGroup
from tests.launch.pods import descendants
from tests.launch.tls_api import Api
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

TYPE = "`kubectl -n team scale statefulset mnist --replicas=0` or `helm -n team uninstall mnist`"
ENVIRONMENT = {
    contract.ENV_RUN_NAME: "mnist",
    contract.ENV_NAMESPACE: "team",
    contract.ENV_WORKLOAD: "StatefulSet/mnist",
}


class Scene:
    """The end of a run in a pod with the service account in ``account``.

    ``said`` are the lines of its log; ``heard`` is called after each.
    """

    def __init__(self, account: Path, heard: Callable[[], None] = lambda: None) -> None:
        self.said: list[str] = []
        self.ending = Ending(
            from_environment(ENVIRONMENT, nodes=1), self._say, lambda namespace: InCluster(namespace, account)
        )
        self._heard = heard

    def _say(self, line: str) -> None:
        self.said.append(line)
        self._heard()

    def free(self, *, owner: bool = True, stopped: bool = False) -> None:
        """Run it to its end."""

        async def is_owner() -> bool:
            return owner

        async def scenario() -> None:
            stop_asked = asyncio.Event()
            if stopped:
                stop_asked.set()
            async with asyncio.timeout(PATIENCE):
                await self.ending.free(is_owner, stop_asked)

        asyncio.run(scenario())


def test_the_statefulset_is_scaled_to_zero_once(api: Api) -> None:
    """Known failure A11."""
    scene = Scene(api.account)
    scene.free()
    assert [(method, path.rpartition("/")[2]) for method, path, _, _ in api.requests] == [("PATCH", "scale")]
    assert scene.said == ["scaled StatefulSet mnist to 0: its GPUs are free, its checkpoints stay"]
    assert scene.ending.parked == ""


def test_where_the_api_refuses_the_pods_are_parked_and_it_is_not_asked_again(api: Api) -> None:
    api.answer = 403
    scene = Scene(api.account)
    scene.free()
    assert len(api.requests) == 1
    (line,) = scene.said
    assert TYPE in line
    assert "403 Forbidden" in line
    assert TYPE in scene.ending.parked


def test_without_an_account_the_pods_are_parked(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "none")
    scene.free()
    (line,) = scene.said
    assert TYPE in line
    assert "no service account" in line


@pytest.mark.parametrize("answer", [401, 409, 429, 500, 503, b""])
def test_an_api_that_cannot_answer_now_is_asked_again(
    api: Api, monkeypatch: pytest.MonkeyPatch, answer: int | bytes
) -> None:
    monkeypatch.setattr(ending, "RETRY_EVERY", 0.01)
    api.answer = answer

    def recover() -> None:
        api.answer = 200

    scene = Scene(api.account, heard=recover)
    scene.free()
    assert len(api.requests) == 2
    assert "so its GPUs stay booked" in scene.said[0]
    assert "scaled StatefulSet mnist to 0" in scene.said[1]
    assert scene.ending.parked == ""


def test_a_pod_that_is_no_longer_rank_0_scales_nothing(api: Api) -> None:
    Scene(api.account).free(owner=False)
    Scene(api.account).free(stopped=True)
    assert api.requests == []


def test_an_event_that_is_refused_is_said_and_ends_nothing(api: Api) -> None:
    api.answer = 403
    scene = Scene(api.account)
    document = Records(Path("unused"), "mnist", "a", "uid").describe_outcome("failed", "as the test asked", 1, {})
    asyncio.run(scene.ending.post_event(document))
    assert len(api.requests) == 1
    assert "could not record the Event: the API answered POST" in scene.said[0]


@pytest.mark.parametrize(("error", "kept"), [("ValueError: x", 20), (500 * "\U0001f525", 20), (20_000 * "é", 3)])
def test_the_event_of_a_long_run_has_its_last_attempts_and_counts_the_others(api: Api, error: str, kept: int) -> None:
    """The API refuses an Event with more than 256 KiB of annotations."""
    records = Records(Path("unused"), "mnist", "a", "uid")
    for number in range(1000):
        records.open_attempt([])
        records.close_attempt(Cause(POD if number % 10 == 0 else WORKER, error), {}, 1.0)
    document = records.describe_outcome("failed", "as the test asked", 1, {})
    scene = Scene(api.account)
    asyncio.run(scene.ending.post_event(document))
    assert scene.said == []
    line = api.requests[0][3]["metadata"]["annotations"][contract.ANNOTATION_OUTCOME]
    assert len(line.encode()) <= annotation.MOST < 256 * 1024
    told = json.loads(line)
    assert told["attempts"] == document["attempts"][-kept:]
    assert sum(told["earlier_attempts"].values()) == 1000 - kept
    assert told["earlier_attempts"].keys() == {POD, WORKER}
    assert told.keys() - {"earlier_attempts"} == document.keys()


def test_the_event_of_a_short_run_leaves_nothing_out() -> None:
    records = Records(Path("unused"), "mnist", "a", "uid")
    document = records.describe_outcome("failed", "no attempt", 1, {})
    assert json.loads(annotation.annotation(document)) == {**document, "earlier_attempts": {}}


def test_parked_pods_hold_no_process_and_tell_how_the_run_ended(make_group: MakeGroup) -> None:
    """All that a launcher started is gone, the warm spare too: no process is left that could hold a GPU."""
    group = make_group("wait", nodes=2, warm=True)
    for pod in group.pods:
        pod.start(RANKZERO_WORKLOAD="StatefulSet/test", RANKZERO_NAMESPACE="team", KUBERNETES_SERVICE_HOST="")
    group.wait_for_workers(1, 2)
    group.release()
    rank0 = group.pods[0]
    until(lambda: "--replicas=0" in rank0.output, what="rank 0 says what to type")
    ended = "the run has succeeded"
    until(lambda: all(ended in pod.output for pod in group.pods), what="every pod knows the end")
    for pod in group.pods:
        assert pod.process is not None
        assert pod.process.poll() is None
        assert descendants(pod.process.pid) == []
    page = rank0.status()
    assert page["group"]["state"] == page["outcome"]["state"] == "succeeded"
    assert "`kubectl -n team scale statefulset test --replicas=0`" in page["waiting_for"]
    for pod in group.pods:
        pod.terminate()
        assert pod.wait() == 0
    assert rank0.output.count("--replicas=0") == 1


def test_a_parked_container_that_is_started_again_parks_again(make_group: MakeGroup) -> None:
    group = make_group("wait", nodes=1)
    environment = {"RANKZERO_WORKLOAD": "StatefulSet/test", "KUBERNETES_SERVICE_HOST": ""}
    pod = group.pods[0].start(uid="a", **environment)
    group.wait_for_workers(1, 1)
    group.release()
    until(lambda: "--replicas=0" in pod.output, what="it is parked")
    pod.delete()
    pod.start(uid="a", **environment)
    until(lambda: pod.status().get("waiting_for", "").startswith("the run has ended"), what="parked again")
    assert pod.status()["outcome"]["state"] == "succeeded"
    assert group.attempt(2) == {}
