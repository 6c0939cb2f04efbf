#!/usr/bin/python
"""Ansible module of the role container_runtime: everything that the role decides on, read from the node in one call."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.container_runtime import cri, files, gpus, services, sources
from ansible.module_utils.machine.records import read_record, read_text
from ansible.module_utils.machine.writing import unwritable

DOCUMENTATION = r"""
module: container_runtime_read
short_description: Read what the role container_runtime decides on
description:
  - Reads the role's record, systemd units, limits of running processes, the runtime's files, what the CRI says, and
    what there is of NVIDIA's toolkit. Changes nothing.
options:
  record:
    description: Path of the role's record.
    type: path
    required: true
  units:
    description: Folder of systemd's units.
    type: path
    required: true
  drop_in:
    description: File name of the role's unit drop-ins.
    type: str
    required: true
  services:
    description: Names of systemd services without C(.service), beside those of the record and the drop-ins.
    type: list
    elements: str
    required: true
  runtime_service:
    description: The service that runs containers; empty for none.
    type: str
    default: ""
  socket:
    description: Socket of the CRI; empty for none, which then is not asked.
    type: str
    default: ""
  crictl:
    description: Program and first arguments with which the CRI is asked.
    type: list
    elements: str
    default: [crictl]
  files:
    description: Paths of files whose content is wanted.
    type: list
    elements: str
    default: []
  sources:
    description: Files and folders with the package manager's sources.
    type: list
    elements: str
    default: []
  binary:
    description: Where nvidia-container-runtime is; empty looks in the usual places.
    type: str
    default: ""
  settle:
    description: Seconds to wait for a CRI that is ready and for the services that are O(awaited), after a restart.
    type: int
    default: 0
  awaited:
    description: Services that have to run, after a restart for which systemd was asked without waiting.
    type: list
    elements: str
    default: []
"""

RETURN = r"""
record:
  description: The record, empty where none is there.
  returned: always
  type: dict
drop_ins:
  description: Texts of the unit drop-ins that are there, by path.
  returned: always
  type: dict
process_1:
  description: Texts of C(limits), C(status) and C(uid_map) of process 1.
  returned: always
  type: dict
units:
  description: Properties of each service's unit by the service's name.
  returned: always
  type: dict
down:
  description: A sentence for each of the services O(awaited) that does not run.
  returned: always
  type: list
running:
  description: Text of C(/proc/PID/limits) of each service that runs.
  returned: always
  type: dict
nr_open:
  description: The kernel's highest number of open files of one process.
  returned: always
  type: int
unwritable:
  description: What of the paths of O(record), O(units) and O(files) cannot be written to, as on a read-only mount.
  returned: always
  type: list
config:
  description: C(path) of containerd's main file and C(files), C(path), C(text) and C(mode) of it and its imports.
  returned: always
  type: dict
files:
  description: Texts of those of O(files) that are there, by path.
  returned: always
  type: dict
sources:
  description: URIs of NVIDIA's repository of the toolkit or a mirror of it, by the file of O(sources) that has them.
  returned: always
  type: dict
cri:
  description: >-
    Whether it C(answers) and is C(ready), its C(runtimes) with their options, the C(default), whether C(cdi) is
    on (null where it does not tell), the C(base_specs) of its runtimes with their limits, and the C(problem);
    C(crictl) is the path of the program, empty where it is not installed.
  returned: always
  type: dict
gpus:
  description: >-
    Device files (C(devices)), those that are C(unlinked) in /dev/char, and how many containers a reload of systemd may
    cut off from them (C(cut_off)).
  returned: always
  type: dict
toolkit:
  description: C(runtime), the path of nvidia-container-runtime, and C(version), both empty where it is not installed.
  returned: always
  type: dict
specifications:
  description: CDI specifications of GPUs, C(path) and C(driver).
  returned: always
  type: list
"""

ROOT = Path("/")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REPOSITORY = "libnvidia-container"


def read_units(module: AnsibleModule, names: list[str]) -> dict[str, dict[str, str]]:
    """What systemd says of the services."""
    _, shown, _ = module.run_command(services.show_command(names), check_rc=True)
    return services.parse_units(shown)


def read_cri(module: AnsibleModule) -> dict[str, Any]:
    """What the CRI says."""
    program, *words = module.params["crictl"]
    path = shutil.which(program, path=PATH)
    if not path or not module.params["socket"]:
        return {**cri.SILENT, "base_specs": {}, "crictl": path or ""}
    answer = cri.parse_info(*module.run_command(cri.info_command([path, *words], module.params["socket"])))
    limits = {spec: cri.parse_rlimits(read_text(Path(spec))) for spec in answer["base_specs"]}
    return {**answer, "base_specs": limits, "crictl": path}


def read_settled(module: AnsibleModule, names: list[str]) -> tuple[dict[str, dict[str, str]], dict[str, Any]]:
    """Units and CRI, asked until they are at rest or ``settle`` seconds are over."""
    awaited = module.params["awaited"]
    end = time.monotonic() + module.params["settle"]
    while True:
        units = read_units(module, names)
        late = time.monotonic() >= end
        if late or not any(services.busy(units[name]) for name in awaited if name in units):
            answer = read_cri(module)
            silent = not answer["crictl"] or not module.params["socket"]
            if late or silent or answer["ready"] or services.down(units, awaited):
                return units, answer
        time.sleep(0.5)


def read_gpus() -> dict[str, Any]:
    """The device files and their links."""
    devices = gpus.devices(ROOT)
    unlinked = [path for path, link in gpus.links(ROOT, devices).items() if not link.is_symlink()]
    return {"devices": devices, "unlinked": unlinked, "cut_off": gpus.cut_off_by_reload(ROOT, devices)}


def read_toolkit(module: AnsibleModule) -> dict[str, str]:
    """What is installed of the toolkit."""
    runtime = gpus.toolkit_runtime(ROOT, module.params["binary"])
    if not Path(gpus.CTK).exists():
        return {"runtime": runtime, "version": ""}
    _, said, _ = module.run_command([gpus.CTK, "--version"])
    return {"runtime": runtime, "version": gpus.parse_version(said)}


def read(module: AnsibleModule) -> dict[str, Any]:
    """All results. Raises ValueError for a damaged record."""
    record = read_record(Path(module.params["record"]), files=dict, services=list)
    drop_ins = sorted(Path(module.params["units"]).glob(f"*.service.d/{module.params['drop_in']}"))
    named = [*module.params["services"], *record.get("services", []), *map(services.service_of, drop_ins)]
    # Before the files and processes are looked at: it may wait until they have settled.
    units, answer = read_settled(module, sorted(set(named)))
    runtime = units.get(module.params["runtime_service"], {})
    config = files.config_path(runtime.get("MainPID", "0"), ROOT)
    return {
        "record": record,
        "drop_ins": {str(path): path.read_text(encoding="utf-8") for path in drop_ins},
        "process_1": {
            name: Path("/proc/1", name).read_text(encoding="utf-8") for name in ("limits", "status", "uid_map")
        },
        "units": units,
        "down": services.down(units, module.params["awaited"]),
        "running": services.read_running(units, ROOT),
        "nr_open": int(Path("/proc/sys/fs/nr_open").read_text(encoding="ascii")),
        "unwritable": unwritable(
            [module.params["record"], Path(module.params["units"], "any"), *module.params["files"]]
        ),
        "config": {"path": config, "files": files.config_files(config, ROOT)},
        "files": files.texts(module.params["files"], ROOT),
        "sources": sources.uris(module.params["sources"], ROOT, REPOSITORY),
        "cri": answer,
        "gpus": read_gpus(),
        "toolkit": read_toolkit(module),
        "specifications": gpus.specifications(ROOT),
    }


def main() -> None:
    """Ansible's entry point."""
    names = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "record": {"type": "path", "required": True},
            "units": {"type": "path", "required": True},
            "drop_in": {"type": "str", "required": True},
            "services": {**names, "required": True},
            "runtime_service": {"type": "str", "default": ""},
            "socket": {"type": "str", "default": ""},
            "crictl": {**names, "default": ["crictl"]},
            "files": {**names, "default": []},
            "sources": {**names, "default": []},
            "binary": {"type": "str", "default": ""},
            "settle": {"type": "int", "default": 0},
            "awaited": {**names, "default": []},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **read(module))
    except ValueError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
