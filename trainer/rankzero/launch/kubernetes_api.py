"""The two things a pod asks of the Kubernetes API: end its own workload and say why.

Standard library only: the client library would be most of the launcher's memory.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rankzero import contract
from rankzero.errors import ClusterError, ForbiddenError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT = 10.0
ACCOUNT_HINT = "the kubelet mounts it; is automountServiceAccountToken on, and is nothing mounted over it?"


class InCluster:
    """The API as this pod's service account sees it.

    Raises :class:`ForbiddenError` where there is no account or it has no right to a call, :class:`ClusterError` where
    a call fails otherwise.
    """

    def __init__(self, namespace: str, account: Path = ACCOUNT) -> None:
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
        self._token_file = account / "token"
        if not host or not self._token_file.exists():
            raise ForbiddenError(
                "this process has no service account",
                hint="the chart mounts one unless rbac.create is false; outside a pod there is none",
            )
        self.namespace = namespace
        self._base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._open = _direct_opener(account / "ca.crt").open

    def scale_to_zero(self, stateful_set: str) -> None:
        """Set a StatefulSet's replicas to 0."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets/{stateful_set}/scale"
        self._call("PATCH", path, {"spec": {"replicas": 0}}, content_type="application/merge-patch+json")

    def post_event(self, kind: str, name: str, *, reason: str, message: str, warning: bool, outcome: str) -> None:
        """Record an Event on the workload; ``outcome`` is JSON in one line and becomes an annotation."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        event = {
            "metadata": {
                "generateName": f"{name}-",
                "namespace": self.namespace,
                "annotations": {contract.ANNOTATION_OUTCOME: outcome},
            },
            "involvedObject": {
                "apiVersion": contract.WORKLOAD_APIS.get(kind, ""),
                "kind": kind,
                "name": name,
                "namespace": self.namespace,
            },
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": contract.APP_NAME},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._call("POST", f"/api/v1/namespaces/{self.namespace}/events", event, content_type="application/json")

    def _call(self, method: str, path: str, body: dict[str, Any], *, content_type: str) -> None:
        request = urllib.request.Request(  # noqa: S310 -- the scheme is fixed above
            self._base + path,
            method=method,
            data=json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token()}",
                "Content-Type": content_type,
            },
        )
        try:
            self._open(request, timeout=TIMEOUT).close()
        except urllib.error.HTTPError as error:
            error.close()
            kind = ForbiddenError if error.code == HTTPStatus.FORBIDDEN else ClusterError
            raise kind(
                f"the API answered {method} {path} with {error.code} {error.reason}",
                hint="the release's Role allows it; see `kubectl auth can-i` with the release's service account",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(
                f"the API does not answer {method} {path}: {error!r}", hint="is egress to it allowed?"
            ) from error

    def _token(self) -> str:
        """Read each time: the kubelet renews it."""
        try:
            return self._token_file.read_text().strip()
        except OSError as error:
            raise ClusterError(
                f"cannot read the service account's token {self._token_file}: {error.strerror}", hint=ACCOUNT_HINT
            ) from error


def _direct_opener(authority: Path) -> urllib.request.OpenerDirector:
    """Opens addresses of the API alone: no proxy of the environment stands between a pod and its API."""
    try:
        tls = ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise ClusterError(
            f"cannot use the cluster's certificate authority {authority}: {error.strerror or error}", hint=ACCOUNT_HINT
        ) from error
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
