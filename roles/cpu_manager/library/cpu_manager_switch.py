#!/usr/bin/python
"""Ansible module of the role cpu_manager: gives the kubelet other files, and the old ones back if it cannot run so.

One call does all of it, so that a connection that breaks off does not leave a node with a stopped kubelet.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.cpu_manager import states as state_files

DOCUMENTATION = r"""
module: cpu_manager_switch
short_description: Start the kubelet with other files, or as before
description:
  - Stops the service, removes state files, writes the files, starts the service and waits until it is healthy with the
    policies expected. Otherwise it puts files and state files back and starts it again.
options:
  service:
    description: The systemd service that runs the kubelet.
    type: str
    required: true
  files:
    description: Text of each file by path, null for one that has to go.
    type: dict
    required: true
  record:
    description: Path of the role's record, written before the service is stopped.
    type: path
    required: true
  record_text:
    description: Its text, null where it has to go.
    type: str
  states:
    description: Text of each state file by path, null for one that has to go, which is the usual case.
    type: dict
    required: true
  policies:
    description: The policy that the state file at each path has to show in the end, null for any, but one.
    type: dict
    required: true
  health_url:
    description: Where the kubelet says that it is healthy.
    type: str
    required: true
  timeout:
    description: Seconds for the service to be healthy.
    type: int
    required: true
"""

RETURN = r"""
ok:
  description: Whether the kubelet lives with the new files.
  returned: always
  type: bool
error:
  description: Why not, in the kubelet's own words.
  returned: always
  type: str
restored:
  description: Whether it runs as before, where it does not live with the new files.
  returned: always
  type: bool
started_at:
  description: When the service was started last, in seconds since the epoch.
  returned: always
  type: int
before:
  description: C(files), C(states) and C(record_text) of before, as the options take them.
  returned: always
  type: dict
"""

POLL = 0.5
"""Seconds between two looks at the service."""
RESTARTS = 2
"""So many restarts by systemd are a kubelet that will not start."""
STATE_MODE = 0o600
"""Of the kubelet's state files."""
KLOG = re.compile(r"^([IWEF])\d{4} \S+ +\d+ \S+\] ")

Texts = dict[str, Any]


def text(path: Path) -> str | None:
    """A file's text, None where there is none. Raises ValueError for what is no text: it could not be put back."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None


def stage(texts: Texts, mode: int = 0o644) -> None:
    """Write the files under other names, which shows whether they can be written. Raises OSError."""
    for name, content in texts.items():
        if content is None:
            continue
        partial = _partial(Path(name))
        partial.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        partial.write_text(content, encoding="utf-8")
        partial.chmod(mode)


def put(texts: Texts, mode: int = 0o644) -> None:
    """Write each file in one step, or remove it. Raises OSError."""
    stage(texts, mode)
    for name, content in texts.items():
        path = Path(name)
        if content is not None:
            _partial(path).rename(path)
        elif path.exists():
            path.unlink()


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def complaint(journal: str) -> str:
    """The kubelet's last error in what it wrote to the journal, without klog's prefix; else its last line."""
    lines = [line.strip() for line in journal.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[EF]\d{4} ", line) or re.match(r"(?i)(error|fatal|panic)\b", line)]
    fatal = [line for line in errors if "command failed" in line or "Failed to start" in line]
    found = (fatal or errors or lines or ["it wrote nothing to its journal"])[-1]
    return KLOG.sub("", found)


class ServiceError(Exception):
    """systemd did not do what it was told."""


class Kubelet:
    """The service, and the files that it reads when it starts."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module
        # Whatever proxy the environment names: this is the node's own loopback.
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._service = f"{module.params['service']}.service"
        self.started_at = 0

    def start_with(self, files: Texts, states: Texts, policies: Texts) -> str:
        """Restart the service with these files; why that failed, or nothing."""
        try:
            return self._start_with(files, states, policies)
        except (OSError, ServiceError) as error:
            return str(error)

    def _start_with(self, files: Texts, states: Texts, policies: Texts) -> str:
        self._systemctl("stop", self._service)
        changes_unit = any(
            name.startswith("/etc/systemd/") and text(Path(name)) != content for name, content in files.items()
        )
        put(states, STATE_MODE)
        put(files)
        if changes_unit:
            self._systemctl("daemon-reload")
        # Whether or not it has failed: that forgets how often it was restarted.
        self._module.run_command(["systemctl", "reset-failed", self._service])
        self.started_at = int(time.time())
        # Not waiting for it: K3s's unit has no limit of its own for a start.
        self._systemctl("start", "--no-block", self._service)
        deadline = time.monotonic() + self._module.params["timeout"]
        while not self._is_well(policies):
            if time.monotonic() > deadline or self._gives_up():
                return self._complaint()
            time.sleep(POLL)
        return ""

    def _is_well(self, policies: Texts) -> bool:
        """Healthy, and its managers have noted their policies, which they do when they have started."""
        for path, policy in policies.items():
            noted = state_files.policy(Path(path))
            if noted is None or policy not in (None, noted):
                return False
        try:
            with self._direct.open(self._module.params["health_url"], timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _gives_up(self) -> bool:
        shown = self._systemctl("show", "--property=ActiveState,NRestarts", "--", self._service)
        unit = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        return unit["ActiveState"] == "failed" or int(unit["NRestarts"]) >= RESTARTS

    def _complaint(self) -> str:
        words = ["journalctl", "--unit", self._service, f"--since=@{self.started_at}", "--output=cat", "--no-pager"]
        _, journal, _ = self._module.run_command(words)
        return complaint(journal)

    def _systemctl(self, *words: str) -> str:
        status, shown, said = self._module.run_command(["systemctl", *words])
        if status:
            raise ServiceError(f"systemctl {' '.join(words)}: {said.strip()}")
        return str(shown)


def switch(module: AnsibleModule) -> dict[str, Any]:
    """Try the new files, else return to those of before."""
    params = module.params
    files, states, record = params["files"], params["states"], params["record"]
    before: dict[str, Texts] = {
        "files": {path: text(Path(path)) for path in files},
        "states": {path: text(Path(path)) for path in states},
    }
    record_before = text(Path(record))
    kubelet = Kubelet(module)
    try:
        stage(files)
        put({record: params["record_text"]})
    except OSError as error_before:
        module.fail_json(msg=f"Nothing was changed, the kubelet was not stopped: {error_before}")
    error = kubelet.start_with(files, states, params["policies"])
    restored = False
    if error:
        put({record: record_before})
        attempts: list[Texts] = [before["states"], dict.fromkeys(states)]
        restored = any(
            not kubelet.start_with(before["files"], kept, dict.fromkeys(params["policies"])) for kept in attempts
        )
    return {
        "ok": not error,
        "error": error,
        "restored": restored,
        "started_at": kubelet.started_at,
        "before": {**before, "record_text": record_before},
    }


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "service": {"type": "str", "required": True},
            "files": {"type": "dict", "required": True},
            "record": {"type": "path", "required": True},
            "record_text": {"type": "str"},
            "states": {"type": "dict", "required": True},
            "policies": {"type": "dict", "required": True},
            "health_url": {"type": "str", "required": True},
            "timeout": {"type": "int", "required": True},
        },
    )
    module.exit_json(changed=True, **switch(module))


if __name__ == "__main__":
    main()
