"""A connection to the cluster, and the API's errors as sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from rankzero.errors import ClusterError, UnreachableError

TIMEOUT = (5, 30)
"""Seconds to connect, seconds to answer."""
TOO_MANY_REQUESTS = 429


def connect(kubeconfig: str | None = None) -> client.ApiClient:
    """A client for ``kubeconfig``, by default that of kubectl, checked by asking for the version.

    Raises :class:`ClusterError` where the file is missing or broken or the API does not answer.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG") or config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        api: client.ApiClient = config.new_client_from_config(config_file=kubeconfig)  # type: ignore[no-untyped-call]
    except Exception as error:  # the loader passes on whatever a file of another shape makes it stumble over
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ClusterError(
            f"the kubeconfig {path} cannot be used: {reason}",
            hint="set KUBECONFIG to a working file; try `kubectl get nodes`",
        ) from error
    # A closed port is news at once; the default would try four times in silence.
    api.rest_client.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(0)
    with readable(f"the API server {api.configuration.host} of {path}"):
        client.VersionApi(api).get_code(_request_timeout=TIMEOUT)
    return api


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn the client's exceptions in the body into :class:`ClusterError` about ``what``.

    It is an :class:`UnreachableError` where the API cannot answer now: it does not respond, has too much to do or
    has an error of its own.
    """
    try:
        yield
    except ApiException as error:
        answer = f"{what}: the API answered {error.status} {error.reason}"
        if error.status == TOO_MANY_REQUESTS or error.status >= 500:
            raise UnreachableError(answer, hint="try `kubectl get nodes`") from error
        raise ClusterError(answer, hint="may you do this? see `kubectl auth can-i`") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise UnreachableError(f"{what} does not answer: {error}", hint="try `kubectl get nodes`") from error
