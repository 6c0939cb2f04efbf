"""Filters of the role container_runtime for K3s and RKE2, which write containerd's configuration at each start."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

SEARCHED = ("/usr/bin/nvidia-container-runtime", "/usr/local/nvidia/toolkit/nvidia-container-runtime")
"""Where they look for NVIDIA's runtime and then set up the handler by themselves (docs.k3s.io/advanced)."""

OURS = "# Written by rankzero's role container_runtime; playbooks/reset.yml removes it."
BASE = '{{ template "base" . }}'


def k3s_plan(node: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What has to change so that the next start writes what is ``wanted``; as container_runtime_containerd_plan.

    ``node`` has the paths ``rendered``, ``templates`` (of configuration version 2 and 3) and ``option``, and ``files``,
    the texts of those that are there. A template is written only where the runtime lies where nobody looks for it.
    """
    files, problems = node["files"], []
    write: dict[str, str] = {}
    if wanted["default"]:
        write[node["option"]] = f"{OURS}\ndefault-runtime: {json.dumps(wanted['handler'])}\n"
    if wanted["handler"] and wanted["binary"] not in SEARCHED:
        path, text, problem = _template(node, wanted)
        if problem:
            problems.append(problem)
        else:
            write[path] = text
    ours = [path for path in (node["option"], *node["templates"]) if files.get(path, "").startswith(OURS)]
    return {
        "write": {path: text for path, text in write.items() if not problems and files.get(path) != text},
        "remove": [path for path in ours if path not in write and not problems],
        "problems": problems,
        "runtimes": {wanted["handler"]: {}} if wanted["handler"] else {},
        "default": wanted["handler"] if wanted["default"] else "",
    }


def _template(node: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, str, str]:
    """Path and text of the template, or the sentence that says why there can be none."""
    binary = wanted["binary"]
    if not wanted["template"]:
        return (
            "",
            "",
            f"{binary} is not where K3s and RKE2 look for it ({', '.join(SEARCHED)}). Set "
            "container_runtime_k3s_template to true, or link it to one of these places.",
        )
    try:
        rendered = tomllib.loads(node["files"].get(node["rendered"], ""))
    except tomllib.TOMLDecodeError as error:
        return "", "", f"{node['rendered']} is not TOML ({error}). Start K3s or RKE2 again, so that it writes it anew."
    if "version" not in rendered:
        return "", "", f"{node['rendered']} is not there yet, so its version is not known. Start K3s or RKE2 once."
    path = node["templates"][0 if rendered["version"] < 3 else 1]
    present = node["files"].get(path, "")
    if present and not present.startswith(OURS):
        return "", "", f"{path} is somebody else's. Add the handler {wanted['handler']} to it, or remove it."
    plugin = "io.containerd.grpc.v1.cri" if rendered["version"] < 3 else "io.containerd.cri.v1.runtime"
    runtimes = rendered.get("plugins", {}).get(plugin, {}).get("containerd", {}).get("runtimes", {})
    cgroup = runtimes.get("runc", {}).get("options", {}).get("SystemdCgroup", False)
    table = f'[plugins."{plugin}".containerd.runtimes.{json.dumps(wanted["handler"])}'
    lines = [
        *(OURS, BASE, "", f"{table}]", '  runtime_type = "io.containerd.runc.v2"', f"{table}.options]"),
        *(f"  BinaryName = {json.dumps(binary)}", f"  SystemdCgroup = {json.dumps(cgroup)}", ""),
    ]
    return path, "\n".join(lines), ""


def copied_templates(files: Mapping[str, str], templates: list[str]) -> list[str]:
    """Templates that repeat the whole configuration instead of adding to it; they break with the next release."""
    base = re.compile(r"{{-?\s*template\s+\"base\"")
    return [path for path in templates if path in files and not base.search(files[path])]


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "container_runtime_k3s_plan": k3s_plan,
            "container_runtime_copied_templates": copied_templates,
        }
