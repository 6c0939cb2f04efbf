#!/usr/bin/python
"""Ansible module of the role cpu_manager: the kubelet's files, options and policies, read from the node in one call."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.cpu_manager.states import policy
from ansible.module_utils.machine.records import read_record, read_text
from ansible.module_utils.machine.writing import unwritable

DOCUMENTATION = r"""
module: cpu_manager_read
short_description: Read what the role cpu_manager decides on
description:
  - Reads the files that the role manages, its record, the kubelet's options and the policies in its state files.
    Changes nothing.
options:
  service:
    description: The systemd service that runs the kubelet.
    type: str
    required: true
  folder:
    description: Folder of drop-ins to take where the kubelet was given none.
    type: path
    required: true
  config:
    description: The kubelet's own configuration file where its command line names none.
    type: path
    default: /var/lib/kubelet/config.yaml
  file:
    description: Name of the role's drop-in in that folder.
    type: str
    required: true
  files:
    description: Paths of other files to read, beside those of the record.
    type: list
    elements: path
    default: []
  record:
    description: Path of the role's record.
    type: path
    required: true
  kubeconfig:
    description: Path of the kubelet's own kubeconfig, which tells a member of a cluster.
    type: path
    required: true
  states:
    description: Paths of the state files by manager, C(cpu) and C(memory).
    type: dict
    required: true
  settings:
    description: Folder with the configuration of K3s or RKE2, empty on kubeadm.
    type: str
    default: ""
"""

RETURN = r"""
active:
  description: Whether the service runs.
  returned: always
  type: bool
member:
  description: Whether the node is a member of a cluster.
  returned: always
  type: bool
folder:
  description: Folder of drop-ins that the kubelet has, or would get.
  returned: always
  type: str
has_folder_option:
  description: Whether the kubelet was started with a folder of drop-ins, other than by the role.
  returned: always
  type: bool
options:
  description: Options of the kubelet's command line, and those that K3s is to pass to it, by name without dashes.
  returned: always
  type: dict
health_url:
  description: Where the kubelet says that it is healthy, empty where it is told not to say it.
  returned: always
  type: str
environment:
  description: Variables that the service's unit sets.
  returned: always
  type: dict
files:
  description: Text of each file by path, null where there is none.
  returned: always
  type: dict
policies:
  description: The policy in each state file, null where there is none.
  returned: always
  type: dict
unwritable:
  description: Those folders of the files, or what is there of their paths, that cannot be written to.
  returned: always
  type: list
record:
  description: The record, empty where there is none.
  returned: always
  type: dict
"""

SHOWN = ("ActiveState", "MainPID", "ExecStart", "Environment")
HEALTH_PORT = 10248
"""The kubelet's own default."""


def environment(shown: str) -> dict[str, str]:
    """What systemd prints as a unit's Environment."""
    return dict(word.split("=", 1) for word in shlex.split(shown) if "=" in word)


def options(words: list[str]) -> dict[str, str]:
    """Options of a command line by name; one without a value is ``true``."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            following = words[index + 1] if index + 1 < len(words) else "--"
            found[name] = value if equals else ("true" if following.startswith("--") else following)
    return found


def passed_on(settings: Path, command: str) -> dict[str, str]:
    """The options that K3s or RKE2 is to pass to its kubelet, by its configuration files and its unit's ``command``.

    Without a YAML parser, which a node need not have: lists in both notations, and single words.
    """
    found: dict[str, str] = {}
    for file in [settings / "config.yaml", *sorted(settings.glob("config.yaml.d/*.yaml"))]:
        key = r"^[\"']?kubelet-arg\+?[\"']?:[ \t]*(.*(?:\n[ \t]*-.*)*)"
        for block in re.findall(key, read_text(file) or "", re.M):
            found.update(re.findall(r"(?:^|[\s,\[\"'])([a-z][a-z-]*)=([^,\]\"'\n]*)", block))
    words = shlex.split(command)
    for index, word in enumerate(words):
        value = word.partition("=")[2] or "".join(words[index + 1 : index + 2])
        if word.partition("=")[0] == "--kubelet-arg":
            name, _, given = value.lstrip("-").partition("=")
            found[name] = given
    return found


def command_of(shown: str) -> str:
    """The command line in what systemd prints as a unit's ExecStart."""
    found = re.search(r"argv\[\]=(.*?) ; ", shown)
    return found[1] if found else ""


def health_url(given: dict[str, str], configurations: list[str]) -> str:
    """Where the kubelet says that it is healthy, empty where it is told not to; the last one that says it counts."""
    port, address = str(HEALTH_PORT), "127.0.0.1"
    for configuration in configurations:
        for name, value in re.findall(r"^healthz(Port|BindAddress):\s*[\"']?([^\"'\s]+)", configuration, re.M):
            port, address = (value, address) if name == "Port" else (port, value)
    port, address = given.get("healthz-port", port), given.get("healthz-bind-address", address)
    return "" if port == "0" else f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{port}/healthz"  # noqa: S104


def read(module: AnsibleModule) -> dict[str, Any]:
    """All results. Raises ValueError for a damaged record."""
    params = module.params
    show = ["systemctl", "show", f"--property={','.join(SHOWN)}", "--", f"{params['service']}.service"]
    _, shown, _ = module.run_command(show, check_rc=True)
    unit = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    command_line = read_text(Path("/proc", unit["MainPID"], "cmdline")) or ""
    given = options(command_line.split("\0"))
    if params["settings"]:
        given = passed_on(Path(params["settings"]), command_of(unit.get("ExecStart", "")))
    folder = given.get("config-dir", params["folder"])
    drop_ins = sorted(path for path in Path(folder).glob("*.conf") if path.name != params["file"])
    configurations = [read_text(path) or "" for path in (Path(given.get("config", params["config"])), *drop_ins)]
    record = read_record(Path(params["record"]), files=list)
    paths = sorted({f"{folder}/{params['file']}", *params["files"], *record.get("files", [])})
    return {
        "active": unit["ActiveState"] == "active",
        "member": Path(params["kubeconfig"]).exists(),
        "folder": folder,
        "has_folder_option": "config-dir" in given,
        "options": given,
        "health_url": health_url(given, configurations),
        "environment": environment(unit.get("Environment", "")),
        "files": {path: read_text(Path(path)) for path in paths},
        "policies": {manager: policy(Path(path)) for manager, path in params["states"].items()},
        "unwritable": unwritable([*paths, params["record"], *params["states"].values()]),
        "record": record,
    }


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "service": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
            "config": {"type": "path", "default": "/var/lib/kubelet/config.yaml"},
            "file": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "record": {"type": "path", "required": True},
            "kubeconfig": {"type": "path", "required": True},
            "states": {"type": "dict", "required": True},
            "settings": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
