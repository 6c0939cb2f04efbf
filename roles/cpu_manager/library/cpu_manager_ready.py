#!/usr/bin/python
"""Ansible module of the role cpu_manager: waits for a node's new kubelet and reads its configuration back.

Runs on the controller: the API server passes the question on to the kubelet.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError
except ImportError:
    HAS_KUBERNETES = False
else:
    HAS_KUBERNETES = True

DOCUMENTATION = r"""
module: cpu_manager_ready
short_description: Wait until a node is Ready and read its kubelet's configuration
description:
  - What an earlier kubelet reported does not count.
options:
  kubeconfig:
    description: Path of the kubeconfig.
    type: path
    required: true
  node:
    description: The node's name in Kubernetes.
    type: str
    required: true
  since:
    description: When the kubelet was started, in seconds since the epoch by the node's clock.
    type: int
    required: true
  timeout:
    description: Seconds for the node to be Ready.
    type: int
    required: true
"""

RETURN = r"""
ready:
  description: Whether the node is Ready.
  returned: always
  type: bool
why:
  description: What the node's condition says where it is not.
  returned: always
  type: str
denied:
  description: Whether the kubeconfig has no right to ask.
  returned: always
  type: bool
config:
  description: The kubelet's configuration as it has it, empty where the node is not Ready.
  returned: always
  type: dict
"""

DENIED = (401, 403)
POLL = 1.0
"""Seconds between two questions."""


def readiness(conditions: list[Any], since: int) -> str:
    """Why the node is not Ready yet, or nothing."""
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
    if ready is None:
        return "it has no condition Ready"
    if datetime.fromisoformat(ready["lastHeartbeatTime"].replace("Z", "+00:00")).timestamp() < since:
        return "its new kubelet has not reported yet"
    return "" if ready["status"] == "True" else f"{ready['reason']}: {ready['message']}"


def wait(params: dict[str, Any]) -> dict[str, Any]:
    """The node's readiness and its kubelet's configuration, asked for until the time is over."""
    connection = config.new_client_from_config(params["kubeconfig"])  # type: ignore[no-untyped-call]
    api: Any = client.CoreV1Api(connection)
    deadline = time.monotonic() + params["timeout"]
    while True:
        found = ask(api, params["node"], params["since"])
        if found["ready"] or found["denied"] or time.monotonic() > deadline:
            return found
        time.sleep(POLL)


def ask(api: Any, node: str, since: int) -> dict[str, Any]:
    """One question; an API server or a tunnel to the kubelet that has just been started may not answer yet."""
    try:
        answer = api.read_node(node, _preload_content=False)
        why = readiness(json.loads(answer.data)["status"]["conditions"], since)
        if why:
            return _result(why)
        answer = api.connect_get_node_proxy_with_path(node, "configz", _preload_content=False)
    except client.ApiException as error:
        return _result(f"the API server answers {error.status} {error.reason}", denied=error.status in DENIED)
    except HTTPError as error:
        return _result(f"the API server does not answer: {error}")
    return _result("", json.loads(answer.data)["kubeletconfig"])


def _result(why: str, kubelet: dict[str, Any] | None = None, *, denied: bool = False) -> dict[str, Any]:
    return {"ready": not why, "why": why, "denied": denied, "config": kubelet or {}}


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "kubeconfig": {"type": "path", "required": True},
            "node": {"type": "str", "required": True},
            "since": {"type": "int", "required": True},
            "timeout": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    if not HAS_KUBERNETES:
        module.fail_json(msg=missing_required_lib("kubernetes"))
    module.exit_json(changed=False, **wait(module.params))


if __name__ == "__main__":
    main()
