"""The two things a pod asks of the Kubernetes API: end its own workload and say why.

Standard library only: the client library would be most of the launcher's memory.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from rankzero import contract
from rankzero.errors import ClusterError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT = 10.0


class InCluster:
    """The API as this pod's service account sees it. Raises :class:`ClusterError` outside a cluster."""

    def __init__(self, namespace: str, account: Path = ACCOUNT) -> None:
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
        self._token_file = account / "token"
        if not host or not self._token_file.exists():
            raise ClusterError(
                "this process has no service account", hint="the chart mounts one; outside a pod it is normal"
            )
        self.namespace = namespace
        self._base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))

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
                "apiVersion": "apps/v1",
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
                # Read each time: the kubelet renews it.
                "Authorization": f"Bearer {self._token_file.read_text().strip()}",
                "Content-Type": content_type,
            },
        )
        try:
            urllib.request.urlopen(request, timeout=TIMEOUT, context=self._tls).close()  # noqa: S310
        except urllib.error.HTTPError as error:
            raise ClusterError(
                f"the API answered {method} {path} with {error.code} {error.reason}",
                hint="the release's Role allows it; see `kubectl auth can-i` with the release's service account",
            ) from error
        except OSError as error:
            raise ClusterError(
                f"the API does not answer {method} {path}: {error}", hint="is egress to it allowed?"
            ) from error
