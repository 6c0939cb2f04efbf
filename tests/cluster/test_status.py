"""``rankzero status`` tells of the present run, or says that it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from rankzero.cluster.run import Run
from rankzero.cluster.status import collect, lines
from rankzero.errors import ClusterError, UnreachableError
from rankzero.launch.pace import Pace
from tests.cluster.fake_api import EVENTS, HANG_UP, NAME, NAMESPACE, PODS, STATEFUL_SET, FakeApi, outcome, serve


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serve() as served:
        yield served


def run_of(api: FakeApi) -> Run:
    return Run(api.client(), NAMESPACE, NAME)


def state(api: FakeApi) -> str:
    return str(collect(run_of(api))["state"])


def running(step: int = 5) -> dict[str, Any]:
    progress = {"step": step, "total_steps": 10, "loss": 0.5, "time": 0.0}
    return {"group": {"state": "running", "attempt": 1, "absent": [], "progress": progress, "attempts": []}}


def test_a_release_that_is_not_there_is_a_sentence(api: FakeApi) -> None:
    with pytest.raises(ClusterError, match="there is no run mnist in namespace team"):
        collect(run_of(api))


def test_a_running_run_is_told_by_rank_0(api: FakeApi) -> None:
    api.put_workload(replicas=2)
    api.put_page(running())
    document = collect(run_of(api))
    assert document["state"] == "running"
    assert any("step 5 of 10" in line for line in lines(document))


def test_a_rank_that_the_others_wait_for_is_named_where_that_costs_them_something(api: FakeApi) -> None:
    api.put_workload(replicas=2)
    page = running()
    for own, named in ((0.105, False), (0.4, True)):
        page["group"]["slowest"] = Pace(rank=3, own=own, usual=0.1, step=max(own, 0.1)).record()
        api.put_page(page)
        said = lines(collect(run_of(api)))
        assert any("rank 3 needs 0.400 s for its own part of a step" in line for line in said) is named


def test_a_run_before_its_first_step_says_what_its_ranks_do(api: FakeApi) -> None:
    api.put_workload(replicas=2)
    page = running()
    ranks = [{"rank": 0, "phase": "startup", "still": 3.2}, {"rank": 1, "phase": "preparation", "still": 61.0}]
    page["group"] |= {"progress": {"total_steps": 10, "attempt": 1}, "ranks": ranks, "time_s": {"startup": 3.0}}
    api.put_page(page)
    said = lines(collect(run_of(api)))
    assert "  ranks: 1 in startup, 1 in preparation; rank 1 in preparation for 61 s" in said
    assert any("startup 3 s" in line for line in said)
    assert not any("step" in line for line in said)


def test_a_loss_that_is_no_number_is_shown_as_such(api: FakeApi) -> None:
    api.put_workload(replicas=2)
    page = running()
    page["group"]["progress"]["loss"] = None
    api.put_page(page)
    assert any("loss nan" in line for line in lines(collect(run_of(api))))


def test_a_result_that_is_no_number_is_shown_as_such(api: FakeApi) -> None:
    api.put_workload(replicas=0)
    api.put_events((150, outcome("succeeded") | {"result": {"loss": None, "accuracy": 0.97123}}))
    assert lines(collect(run_of(api)))[2:] == ["  loss: nan", "  accuracy: 0.9712"]


@pytest.mark.parametrize(
    ("containers", "trouble"),
    [
        ([{"terminated": {"exitCode": 0}}, {"running": {}}], ""),
        ([{"running": {}}, {"waiting": {"reason": "PodInitializing"}}], ""),
        (
            [{"terminated": {"exitCode": 69, "reason": "Error"}}, {"waiting": {"reason": "PodInitializing"}}],
            "init container code: Error with status 69",
        ),
        (
            [
                {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                {"waiting": {"reason": "PodInitializing"}},
            ],
            "init container code: CrashLoopBackOff: back-off 40s",
        ),
        ([{"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 1}}], "ended with status 1"),
        (
            [
                {"terminated": {"exitCode": 0}},
                {"terminated": {"exitCode": 64, "message": "no such file\n  fix: a path"}},
            ],
            "ended with status 64: no such file; fix: a path",
        ),
    ],
)
def test_a_pod_whose_init_container_fails_says_so(api: FakeApi, containers: list[Any], trouble: str) -> None:
    """That of code.git for one: the trainer itself only waits for it."""
    api.put_pods(100)
    init, trainer = (
        {"name": name, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        for name, state in zip(("code", "trainer"), containers, strict=True)
    )
    for one in (init, trainer):
        one["lastState"] = {}
    _, document = api.answers[PODS]
    document["items"][0]["status"] |= {"initContainerStatuses": [init], "containerStatuses": [trainer]}
    assert [pod.trouble for pod in run_of(api).pods()] == [trouble]


def test_a_container_that_is_held_back_says_why_it_ended_and_not_how_long_it_waits(api: FakeApi) -> None:
    api.put_pods(100)
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
    said = "rank 1 (mnist-1) failed at step 7\nTraceback (most recent call last):\n  more"
    _, document = api.answers[PODS]
    document["items"][0]["status"]["containerStatuses"] = [
        {
            **{"name": "trainer", "image": "", "imageID": "", "ready": False, "restartCount": 3},
            **{"state": waiting, "lastState": {"terminated": {"exitCode": 64, "message": said}}},
        }
    ]
    assert [pod.trouble for pod in run_of(api).pods()] == ["CrashLoopBackOff: rank 1 (mnist-1) failed at step 7"]


def event(kind: str, reason: str, at: float, message: str) -> dict[str, Any]:
    """As controllers write them: created once, then counted."""
    seen = datetime.fromtimestamp(at, UTC).isoformat()
    created = datetime.fromtimestamp(1, UTC).isoformat()
    return {
        "metadata": {"name": f"{reason}{at}", "creationTimestamp": created},
        **{"involvedObject": {}, "lastTimestamp": seen, "type": kind, "reason": reason, "message": message},
    }


REFUSED = event("Warning", "FailedCreate", 200, 'pods "mnist-0" is forbidden: exceeded quota: team')


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([REFUSED, event("Warning", "FailedCreate", 150, "something else")], True),
        ([REFUSED, event("Normal", "SuccessfulCreate", 150, "create Pod mnist-0 successful")], True),
        ([REFUSED, event("Normal", "SuccessfulCreate", 250, "create Pod mnist-0 successful")], False),
        ([event("Warning", "FailedScheduling", 200, 'pods "mnist-0" is forbidden: exceeded quota: team')], False),
        ([], False),
    ],
)
def test_pods_that_the_api_does_not_take_are_told_with_the_reason(api: FakeApi, events: list[Any], told: bool) -> None:
    """A quota, a pod security standard, a PriorityClass that is not there: no pod says it, since there is none."""
    api.put_workload(replicas=1)
    api.answers[EVENTS] = (200, {"items": events})
    line = '  FailedCreate: pods "mnist-0" is forbidden: exceeded quota: team'
    assert (line in lines(collect(run_of(api)))) == told


def test_a_run_whose_pods_are_all_there_asks_nothing_about_refused_ones(api: FakeApi) -> None:
    api.put_workload(replicas=1)
    api.put_page(running())
    api.answers[EVENTS] = (200, {"items": [REFUSED]})
    assert not any("FailedCreate" in line for line in lines(collect(run_of(api))))


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [("pod has unbound immediate PersistentVolumeClaims.", True), ("2 Insufficient nvidia.com/gpu.", False)],
)
def test_a_pod_that_waits_for_its_volume_says_what_the_storage_class_says(
    api: FakeApi, scheduler: str, told: bool
) -> None:
    """Two nodes and a class that knows no ReadWriteMany: the first install on many clusters."""
    api.put_workload(replicas=1)
    api.put_pods(100)
    _, document = api.answers[PODS]
    pod = document["items"][0]
    del pod["spec"]["nodeName"]
    pod["spec"]["volumes"] = [{"name": "c", "persistentVolumeClaim": {"claimName": "mnist-checkpoints"}}, {"name": "t"}]
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": scheduler}
    pod["status"] = {"phase": "Pending", "conditions": [unscheduled]}
    refused = "Only support ReadWriteOnce access mode"
    said = [("Normal", "ExternalProvisioning", 300, "waits"), ("Warning", "ProvisioningFailed", 200, refused)]
    api.answers[EVENTS] = (200, {"items": [event(*one) for one in said]})
    line = f"  claim mnist-checkpoints: ProvisioningFailed: {refused}"
    assert (line in lines(collect(run_of(api)))) == told


def test_a_run_that_has_ended_is_told_by_its_event(api: FakeApi) -> None:
    api.put_workload(replicas=0)
    api.put_events((150, outcome("succeeded")))
    document = collect(run_of(api))
    assert document["state"] == "succeeded"
    assert "  it has succeeded" in lines(document)


def test_attempts_that_were_too_many_for_the_event_are_counted_and_the_volume_is_named(api: FakeApi) -> None:
    api.put_workload(replicas=0)
    last = {"attempt": 100, "ended": 150.0, "cause": "a bug", "kind": "worker"}
    earlier = {"earlier_attempts": {"worker": 90, "pod": 9}, "attempts": [last]}
    api.put_events((150, outcome("failed") | earlier))
    assert lines(collect(run_of(api)))[-2:] == [
        "  99 earlier attempts (90 worker, 9 pod); see mnist/a/outcome.json on the checkpoint volume",
        "  attempt 100: no step, ended: a bug",
    ]


def parked(run_id: str = "a") -> dict[str, Any]:
    """The page of a rank 0 that may not scale its StatefulSet."""
    group = {**running()["group"], "state": "succeeded", "absent": [0]}
    return {"group": group, "outcome": outcome("succeeded", run_id), "waiting_for": "somebody to type this"}


def test_a_run_whose_pods_are_parked_is_told_by_rank_0_and_so_is_what_to_type(api: FakeApi) -> None:
    """Without a Role there is no Event, and the StatefulSet keeps its size."""
    api.put_workload(replicas=2)
    api.put_page(parked())
    document = collect(run_of(api))
    assert document["state"] == "succeeded"
    assert lines(document)[1] == "  it has succeeded"
    assert "  somebody to type this" in lines(document)
    assert not [line for line in lines(document) if "waiting for node rank" in line]


def test_a_parked_pod_of_an_earlier_run_does_not_tell_the_outcome_of_this_one(api: FakeApi) -> None:
    api.put_workload(replicas=2, run_id="b")
    api.put_page(parked(run_id="a"))
    assert collect(run_of(api))["outcome"] is None


def test_another_run_of_the_release_says_nothing_about_this_one(api: FakeApi) -> None:
    """Installed again, or upgraded, with another run.id within the hour that Events live."""
    api.put_workload(replicas=2, run_id="b")
    api.put_events((150, outcome("succeeded", run_id="a")))
    assert state(api) == "waiting"


def test_the_same_run_installed_again_is_not_what_it_was_before(api: FakeApi) -> None:
    api.put_workload(replicas=2, created=200)
    api.put_events((150, outcome("failed")))
    assert state(api) == "waiting"


def test_a_run_that_was_started_again_in_place_is_not_what_it_was_before(api: FakeApi) -> None:
    """Scaled up again by hand: the StatefulSet is the old one, rank 0's pod is not."""
    api.put_workload(replicas=2)
    api.put_events((150, outcome("failed")))
    api.put_pods(160, 90)
    assert state(api) == "waiting"
    api.put_pods(140, 90)
    assert state(api) == "failed"


def test_the_newest_of_several_outcomes_counts(api: FakeApi) -> None:
    api.put_workload(replicas=0)
    api.put_events((150, outcome("failed")), (170, outcome("succeeded")), (160, outcome("failed")))
    assert state(api) == "succeeded"


def test_once_the_event_has_expired_the_volume_is_named_and_nothing_is_claimed(api: FakeApi) -> None:
    api.put_workload(replicas=0, run_id="a")
    document = collect(run_of(api))
    assert document["state"] == "ended"
    assert "  how it ended is no longer known here; see mnist/a/outcome.json on the checkpoint volume" in lines(
        document
    )


@pytest.mark.parametrize("foreign", ["", "no JSON", "[]", '"text"', "{}"])
def test_an_annotation_of_another_form_is_left_out(api: FakeApi, foreign: str) -> None:
    api.put_workload(replicas=0)
    api.put_events((150, outcome("succeeded")), (160, foreign))
    assert state(api) == "succeeded"


@pytest.mark.parametrize("status", [401, 403])
def test_a_page_that_may_not_be_read_is_an_error_and_not_a_run_that_waits(api: FakeApi, status: int) -> None:
    api.put_workload(replicas=2)
    api.put_page({"kind": "Status"}, status)
    with pytest.raises(ClusterError, match=f"pods/proxy of team/mnist-0: the API answered {status}"):
        collect(run_of(api))


@pytest.mark.parametrize("answer", [(404, {}), (400, {}), (500, {}), (503, {}), (200, b"<html>"), (200, [])])
def test_a_page_that_does_not_answer_is_a_pod_that_is_not_there_yet(api: FakeApi, answer: tuple[int, Any]) -> None:
    api.put_workload(replicas=2)
    api.put_page(answer[1], answer[0])
    assert state(api) == "waiting"


@pytest.mark.parametrize("left_out", ["hostname", "containers", "all"])
def test_without_a_pod_or_its_port_there_is_no_page(api: FakeApi, left_out: str) -> None:
    api.put_workload(replicas=2)
    api.put_page(running())
    pods = api.answers[PODS][1]["items"]
    if left_out == "all":
        pods.clear()
    elif left_out == "containers":
        pods[0]["spec"]["containers"] = [{"name": "trainer"}]
    else:
        del pods[0]["spec"]["hostname"]
    assert state(api) == "waiting"


@pytest.mark.parametrize("answer", [(HANG_UP, None), (500, {}), (503, {}), (429, {})])
@pytest.mark.parametrize("path", [STATEFUL_SET, PODS, EVENTS])
def test_an_api_that_cannot_answer_now_is_told_apart_from_one_that_refuses(
    api: FakeApi, path: str, answer: tuple[int, Any]
) -> None:
    api.put_workload(replicas=0)
    api.answers[path] = answer
    with pytest.raises(UnreachableError):
        collect(run_of(api))
    api.answers[path] = (403, {})
    with pytest.raises(ClusterError) as caught:
        collect(run_of(api))
    assert not isinstance(caught.value, UnreachableError)


def test_a_connection_that_breaks_on_the_way_to_the_page_is_no_pod_that_is_away(api: FakeApi) -> None:
    api.put_workload(replicas=2)
    api.put_page(None, HANG_UP)
    with pytest.raises(UnreachableError, match="pods/proxy of team/mnist-0 does not answer"):
        run_of(api).status()


def test_a_pod_tells_how_often_its_containers_were_started_again(api: FakeApi) -> None:
    api.put_pods(100, 100)
    containers = [{"name": "trainer", "image": "x", "imageID": "x", "ready": True, "restartCount": 2, "state": {}}]
    api.answers[PODS][1]["items"][1]["status"]["containerStatuses"] = containers
    assert [pod.restarts for pod in run_of(api).pods()] == [0, 2]


def test_deleting_a_pod_that_has_gone_is_no_error(api: FakeApi) -> None:
    run_of(api).delete_pod("mnist-1")


def test_results_are_shown_short_and_whole_numbers_whole(api: FakeApi) -> None:
    api.put_workload(replicas=0)
    ended = outcome("succeeded") | {"result": {"loss": 0.00259412, "hash": 256200000000001}}
    api.put_events((150, ended))
    said = lines(collect(run_of(api)))
    assert "  loss: 0.002594" in said
    assert "  hash: 256200000000001" in said
