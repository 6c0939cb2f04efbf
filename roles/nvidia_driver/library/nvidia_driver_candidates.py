#!/usr/bin/python
"""Ansible module of the role nvidia_driver: which versions the repositories have, asked without changing the node."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

DOCUMENTATION = r"""
module: nvidia_driver_candidates
short_description: Ask package repositories for versions
description:
  - Reads a repository's index into a temporary folder and lists the versions of packages in it. The node's own sources,
    lists and settings stay as they are.
options:
  uri:
    description: URI of the repository to ask for O(packages), a flat one with apt. Empty asks the node's own sources.
    type: str
    default: ""
  key_url:
    description: URL of the key that the repository at O(uri) is signed with.
    type: str
    default: ""
  packages:
    description: Names of packages to look for at O(uri).
    type: list
    elements: str
    required: true
  others:
    description: Names of packages to look for in the node's own sources as well.
    type: list
    elements: str
    default: []
"""

RETURN = r"""
versions:
  description: The versions of each package, empty for a package that is in no repository.
  returned: always
  type: dict
key:
  description: Text of the key, empty without O(key_url).
  returned: always
  type: str
error:
  description: What the package manager said if the repository could not be read, else empty.
  returned: always
  type: str
"""

SECONDS = 30
"""What a mirror has to answer a question."""

LIMIT = 300
"""Seconds that reading all of a repository's index may take: one that trickles answers every question in time."""
TIMED_OUT = (124, 137)
"""How timeout(1) ends where it had to end the program, by either signal."""


def run(module: AnsibleModule, words: Sequence[str], limit: int = LIMIT) -> tuple[int, str, str]:
    """A program's exit status, output and errors; one that takes longer than ``limit`` is ended and says so."""
    code, output, errors = module.run_command(["timeout", "--kill-after=10", str(limit), *words])
    return (code, output, f"E: {words[0]} took longer than {limit} s.") if code in TIMED_OUT else (code, output, errors)


def parse_madison(output: str) -> dict[str, list[str]]:
    """Versions by package from what ``apt-cache madison`` prints."""
    versions: dict[str, list[str]] = {}
    for line in output.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 3 and fields[1] not in versions.setdefault(fields[0], []):
            versions[fields[0]].append(fields[1])
    return versions


def parse_repoquery(output: str) -> dict[str, list[str]]:
    """Versions by package from lines of a name, a tab and a version."""
    versions: dict[str, list[str]] = {}
    for line in output.splitlines():
        name, separator, version = line.strip().partition("\t")
        if separator and version not in versions.setdefault(name, []):
            versions[name].append(version)
    return versions


def complaint(output: str) -> str:
    """The lines of an output in which apt or dnf say what went wrong, without their colours and marks."""
    lines = [line.strip() for line in output.splitlines()]
    return " ".join(line[2:].strip() if line[:2] in ("E:", "W:") else line for line in lines if line)


class Apt:
    """apt with lists of its own in ``folder``, and with one source or the node's."""

    def __init__(self, module: AnsibleModule, folder: Path) -> None:
        """``folder`` is empty and goes away afterwards."""
        self.module, self.folder = module, folder
        # apt reads indexes as the user _apt.
        folder.chmod(0o755)
        (folder / "lists/partial").mkdir(parents=True)
        (folder / "sources").mkdir()
        self.options = [
            *(
                "-o",
                f"Dir::State::Lists={folder}/lists",
                "-o",
                "Dir::Cache::pkgcache=",
                "-o",
                "Dir::Cache::srcpkgcache=",
            ),
            *("-o", "APT::Update::Error-Mode=any", "-o", "APT::Get::List-Cleanup=false"),
            # A mirror that swallows packets would hold all nodes for minutes.
            *("-o", f"Acquire::http::Timeout={SECONDS}", "-o", f"Acquire::https::Timeout={SECONDS}"),
            *("-o", "Acquire::Retries=1"),
        ]

    def only(self, uri: str, key: str) -> None:
        """Ask the flat repository at ``uri``, signed by ``key``, and nothing else."""
        (self.folder / "key.asc").write_text(key, encoding="utf-8")
        source = f"Types: deb\nURIs: {uri}\nSuites: /\nSigned-By: {self.folder}/key.asc\n"
        (self.folder / "sources/asked.sources").write_text(source, encoding="utf-8")
        self.options += ["-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={self.folder}/sources"]

    def update(self) -> str:
        """Read the indexes. What went wrong, or nothing."""
        code, output, errors = run(self.module, ["apt-get", "--quiet", *self.options, "update"])
        return complaint(errors or output) if code or "Failed to fetch" in errors else ""

    def madison(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Versions by package."""
        return _madison(self.module, names, self.options)


def _madison(module: AnsibleModule, names: Sequence[str], options: Sequence[str] = ()) -> dict[str, list[str]]:
    if not names:
        return {}
    _, output, _ = run(module, ["apt-cache", *options, "madison", *names])
    return parse_madison(output)


def ask_apt(module: AnsibleModule, key: str) -> dict[str, Any]:
    """Versions and error with apt."""
    given = module.params
    # What the node's lists have is good enough for packages whose version does not matter.
    versions = _madison(module, given["others"])
    with tempfile.TemporaryDirectory(prefix="nvidia-driver-") as folder:
        apt = Apt(module, Path(folder))
        if given["uri"]:
            apt.only(given["uri"], key)
        error = apt.update()
        found = apt.madison([*given["packages"], *given["others"]])
    if given["uri"] and set(given["others"]) - set(versions) - set(found):
        with tempfile.TemporaryDirectory(prefix="nvidia-driver-") as folder:
            own = Apt(module, Path(folder))
            error = error or own.update()
            versions.update(own.madison(given["others"]))
    return {"versions": {**versions, **found}, "error": error}


def ask_dnf(module: AnsibleModule) -> dict[str, Any]:
    """Versions and error with dnf."""
    given = module.params
    wanted = [
        f"--setopt=timeout={SECONDS}",
        "--setopt=retries=1",
        "repoquery",
        "--queryformat=%{name}\t%{version}-%{release}",
        "--disable-modular-filtering",
    ]
    one = [
        f"--repofrompath=rankzero-asked,{given['uri']}",
        "--repo=rankzero-asked",
        "--setopt=rankzero-asked.gpgcheck=0",
    ]
    code, output, errors = run(module, ["dnf", "--quiet", *(one if given["uri"] else []), *wanted, *given["packages"]])
    versions = parse_repoquery(output)
    if given["others"]:
        _, output, _ = run(module, ["dnf", "--quiet", *wanted, *given["others"]])
        versions.update(parse_repoquery(output))
    return {"versions": versions, "error": complaint(errors) if code else ""}


def read_key(url: str) -> tuple[str, str]:
    """The key's text, and what went wrong instead."""
    if not url:
        return "", ""
    try:
        return str(open_url(url, timeout=SECONDS).read().decode()), ""
    except (OSError, ValueError) as error:
        return "", f"the key {url} cannot be read: {error}"


def main() -> None:
    """Ansible's entry point."""
    names = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "uri": {"type": "str", "default": ""},
            "key_url": {"type": "str", "default": ""},
            "packages": {**names, "required": True},
            "others": {**names, "default": []},
        },
        supports_check_mode=True,
    )
    key, error = read_key(module.params["key_url"])
    if error:
        module.exit_json(changed=False, versions={}, key="", error=error)
    found = ask_apt(module, key) if shutil.which("apt-get") else ask_dnf(module)
    asked = [*module.params["packages"], *module.params["others"]]
    versions = {name: found["versions"].get(name, []) for name in asked}
    module.exit_json(changed=False, versions=versions, key=key, error=found["error"])


if __name__ == "__main__":
    main()
