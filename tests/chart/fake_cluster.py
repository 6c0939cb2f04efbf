"""A Kubernetes API of this machine that holds claims and nothing else, for a Helm that looks them up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scripts.generate.helm import NAMESPACE

CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
LEFT_BY_HELM = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "mnist", "meta.helm.sh/release-namespace": NAMESPACE},
}
"""Without it Helm takes a claim for somebody else's."""

KINDS = {
    "v1": ["ConfigMap", "PersistentVolumeClaim", "Service", "ServiceAccount"],
    "apps/v1": ["StatefulSet"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
    "rbac.authorization.k8s.io/v1": ["Role", "RoleBinding"],
}
"""What Helm wants to find of the kinds of a release before it shows them."""


def discovery() -> dict[str, Any]:
    """Answers by path."""
    groups = [version.split("/")[0] for version in KINDS if "/" in version]
    versions = [{"groupVersion": version, "version": "v1"} for version in KINDS if "/" in version]
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [{"name": name, "versions": [one]} for name, one in zip(groups, versions, strict=True)],
        },
    }
    for version, kinds in KINDS.items():
        answers[f"/apis/{version}" if "/" in version else f"/api/{version}"] = {
            "kind": "APIResourceList",
            "groupVersion": version,
            "resources": [
                {"name": f"{kind.lower()}s", "kind": kind, "namespaced": True, "verbs": ["get"]} for kind in kinds
            ],
        }
    return answers


def claim(mode: str, *, size: str = "10Gi", storage_class: str = "fast") -> dict[str, Any]:
    """The spec of a claim."""
    return {"accessModes": [mode], "storageClassName": storage_class, "resources": {"requests": {"storage": size}}}


@contextmanager
def serve(kubeconfig: Path, claims: Mapping[str, dict[str, Any]]) -> Iterator[None]:
    """Serve these specs by name until the body ends; ``kubeconfig`` is written and leads there."""
    answers = discovery()
    for name, spec in claims.items():
        metadata = {"name": name, "namespace": NAMESPACE, **LEFT_BY_HELM}
        answers[f"{CLAIMS}/{name}"] = {
            "kind": "PersistentVolumeClaim",
            **{"apiVersion": "v1", "metadata": metadata, "spec": spec},
        }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(found or missing).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """No lines in the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster = {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
    context = {"name": "fake", "context": {"cluster": "fake", "user": "fake"}}
    document = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context]}
    kubeconfig.write_text(json.dumps(document | {"current-context": "fake"}), encoding="utf-8")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
