"""What the launcher asks of the Kubernetes API, through real TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.errors import ClusterError
from rankzero.launch.kubernetes_api import InCluster
from rankzero.launch.ports import free_port
from tests.launch.tls_api import Api, serve


def in_cluster(api: Api) -> InCluster:
    return InCluster("team", api.account)


def post_event(api: Api, kind: str) -> None:
    in_cluster(api).post_event(kind, "mnist", reason="R", message="m" * 5000, warning=True, outcome='{"state": "x"}')


def test_its_own_workload_is_scaled_to_zero_as_the_pods_service_account(api: Api) -> None:
    in_cluster(api).scale_to_zero("mnist")
    [(method, path, headers, body)] = api.requests
    assert (method, path) == ("PATCH", "/apis/apps/v1/namespaces/team/statefulsets/mnist/scale")
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert body == {"spec": {"replicas": 0}}


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("StatefulSet", "apps/v1"),
        ("Job", "batch/v1"),
        ("Pod", "v1"),
        ("PyTorchJob", "kubeflow.org/v1"),
        ("TrainJob", "trainer.kubeflow.org/v1alpha1"),
    ],
)
def test_the_event_is_about_an_object_of_the_workloads_own_api(api: Api, kind: str, version: str) -> None:
    post_event(api, kind)
    [(method, path, _, event)] = api.requests
    assert (method, path) == ("POST", "/api/v1/namespaces/team/events")
    assert event["involvedObject"] == {"apiVersion": version, "kind": kind, "name": "mnist", "namespace": "team"}
    assert event["metadata"]["annotations"] == {contract.ANNOTATION_OUTCOME: '{"state": "x"}'}
    assert (event["type"], len(event["message"])) == ("Warning", 1024)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_no_proxy_stands_between_a_pod_and_its_api(api: Api, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Users set a proxy for their data; it would have to know the cluster's addresses."""
    monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    in_cluster(api).scale_to_zero("mnist")
    assert len(api.requests) == 1


def test_the_token_is_read_anew_for_each_call(api: Api) -> None:
    cluster = in_cluster(api)
    (api.account / "token").write_text("renewed")
    cluster.scale_to_zero("mnist")
    assert api.requests[0][2]["Authorization"] == "Bearer renewed"


def refuse(api: Api) -> None:
    api.answer = 403


def send_no_http(api: Api) -> None:
    api.answer = b"what?\r\n\r\n"


def hang_up(api: Api) -> None:
    api.answer = b""


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (refuse, "with 403 Forbidden"),
        (send_no_http, "does not answer .*BadStatusLine"),
        (hang_up, "does not answer .*RemoteDisconnected"),
    ],
)
def test_what_the_api_does_wrong_is_a_sentence(api: Api, wrong: Callable[[Api], None], sentence: str) -> None:
    wrong(api)
    with pytest.raises(ClusterError, match=sentence) as caught:
        in_cluster(api).scale_to_zero("mnist")
    assert caught.value.hint


def test_a_server_with_the_certificate_of_another_authority_is_not_told_the_token(api: Api) -> None:
    with serve(api.account.with_name("other")) as other:
        (api.account / "ca.crt").write_bytes((other.account / "ca.crt").read_bytes())
    with pytest.raises(ClusterError, match="certificate verify failed"):
        in_cluster(api).scale_to_zero("mnist")
    assert api.requests == []


def test_a_token_that_has_gone_is_a_sentence(api: Api) -> None:
    cluster = in_cluster(api)
    (api.account / "token").unlink()
    with pytest.raises(ClusterError, match=r"cannot read the service account's token .*: No such file"):
        cluster.scale_to_zero("mnist")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_missing_or_broken_authority_is_a_sentence(api: Api, content: str | None) -> None:
    (api.account / "ca.crt").unlink()
    if content is not None:
        (api.account / "ca.crt").write_text(content)
    with pytest.raises(ClusterError, match="cannot use the cluster's certificate authority"):
        in_cluster(api)


def test_outside_a_cluster_there_is_no_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="no service account"):
        InCluster("team", tmp_path)
