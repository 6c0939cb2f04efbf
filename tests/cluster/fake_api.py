"""A Kubernetes API of this machine that answers what a test has put in; the client and its sockets are real."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from kubernetes import client

from rankzero import contract

HANG_UP = 0
"""As a status: close the connection without an answer."""
NAMESPACE, NAME = "team", "mnist"
STATEFUL_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
STATUS_PORT = 16123
PAGE = f"{PODS}/{NAME}-0:{STATUS_PORT}/proxy/status"


_CONTAINER = {
    "name": contract.CONTAINER_NAME,
    "env": [{"name": contract.ENV_RANK0_HOST, "value": f"{NAME}-0.{NAME}"}],
    "ports": [
        {"name": contract.RENDEZVOUS_PORT_NAME, "containerPort": 12123},
        {"name": contract.STATUS_PORT_NAME, "containerPort": STATUS_PORT},
    ],
}


class FakeApi:
    """``answers`` holds status and document by path; ``next`` is used up before them, one answer a request."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            PODS: (200, {"kind": "PodList", "items": []}),
            EVENTS: (200, {"kind": "EventList", "items": []}),
        }
        self.next: list[tuple[int, Any]] = []
        self.port = 0

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and document for a request; 404 where there is nothing."""
        if self.next:
            return self.next.pop(0)
        return self.answers.get(path, (404, {"kind": "Status", "reason": "NotFound"}))

    def client(self) -> client.ApiClient:
        """A client for it that, as ``rankzero.cluster.api.connect`` has it, asks once."""
        settings = client.Configuration(host=f"http://127.0.0.1:{self.port}")
        api = client.ApiClient(settings)
        api.rest_client.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(0)
        return api

    def put_workload(self, *, replicas: int, run_id: str = "a", created: float = 100) -> None:
        """The release's StatefulSet."""
        container = {"name": "trainer", "env": [{"name": contract.ENV_RUN_ID, "value": run_id}]}
        self.answers[STATEFUL_SET] = (
            200,
            {
                "metadata": _metadata(NAME, created),
                "spec": {
                    "replicas": replicas,
                    "serviceName": NAME,
                    "selector": {},
                    "template": {"spec": {"containers": [container]}},
                },
            },
        )

    def put_pods(self, *created: float) -> None:
        """One running pod for each time of creation."""
        pods = [
            {
                "metadata": _metadata(f"{NAME}-{index}", at),
                "spec": {"nodeName": "node", "hostname": f"{NAME}-{index}", "containers": [_CONTAINER]},
                "status": {"phase": "Running"},
            }
            for index, at in enumerate(created)
        ]
        self.answers[PODS] = (200, {"items": pods})

    def put_page(self, document: Any, status: int = 200) -> None:
        """The pod of node rank 0 and what it answers."""
        self.put_pods(100)
        self.answers[PAGE] = (status, document)

    def put_events(self, *events: tuple[float, Any]) -> None:
        """Events about the StatefulSet: time of creation and outcome; a text is taken as it is."""
        self.answers[EVENTS] = (
            200,
            {
                "items": [
                    {
                        "metadata": {
                            **_metadata(f"{NAME}.{number}", at),
                            "annotations": {
                                contract.ANNOTATION_OUTCOME: outcome
                                if isinstance(outcome, str)
                                else json.dumps(outcome)
                            },
                        },
                        "involvedObject": {},
                    }
                    for number, (at, outcome) in enumerate(events)
                ]
            },
        )


def _metadata(name: str, created: float) -> dict[str, Any]:
    return {"name": name, "uid": name, "creationTimestamp": datetime.fromtimestamp(created, UTC).isoformat()}


def outcome(state: str, run_id: str = "a") -> dict[str, Any]:
    """An outcome as the launcher writes it, its attempts left out."""
    return {"run": NAME, "run_id": run_id, "state": state, "reason": f"it has {state}", "result": {}, "attempts": []}


@contextmanager
def serve() -> Iterator[FakeApi]:
    """Serve until the body ends."""
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = api.answer(unquote(urlsplit(self.path).path))
            if status == HANG_UP:
                self.close_connection = True
                return
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_DELETE = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """No lines in the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
