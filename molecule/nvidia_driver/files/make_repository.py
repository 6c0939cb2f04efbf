#!/usr/bin/python3
"""MOCK of NVIDIA's package repository: packages with the real names, and next to nothing in them.

usage: make_repository.py FOLDER KERNEL BRANCHES
    FOLDER    where the repository goes, such as /srv/mirror/debian12/x86_64
    KERNEL    release that the stand-in kernel modules are for
    BRANCHES  versions of the driver, joined by commas
Needs dpkg-deb and gpg, and makes a signing key on its first run.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

KEY = "mock@rankzero.test"
KEY_FILES = {"debian12": "3bf863cc.pub", "debian13": "8793F200.pub"}
"""What NVIDIA calls the key beside the index of each system."""
SERVICE = """[Unit]
Description=MOCK of {name}
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""
MODPROBE = """#!/bin/sh
# MOCK of nvidia-modprobe -u: makes the device file that the kernel module would have been asked for.
[ -e /dev/nvidia-uvm ] || mknod /dev/nvidia-uvm c 235 0
"""


def kernel_module(version: str, license_text: str) -> bytes:
    """An object file with nothing in it but what modinfo tells: sections null, .modinfo and .shstrtab."""
    info = b"".join(text.encode() + b"\0" for text in (f"license={license_text}", f"version={version}", "name=nvidia"))
    names = b"\0.modinfo\0.shstrtab\0"
    start = 64
    table = start + len(info) + len(names)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, start, len(info), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, start + len(info), len(names), 0, 0, 1, 0)
    return header + info + names + sections


def build(
    folder: Path, name: str, version: str, fields: dict[str, str], files: dict[str, bytes], script: str = ""
) -> None:
    """One package; ``script`` runs after it was unpacked."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary, "tree")
        control = {
            "Package": name,
            "Version": version,
            "Architecture": "amd64",
            "Maintainer": KEY,
            "Description": "MOCK",
        }
        for path, content in files.items():
            target = tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o755 if "/bin/" in path else 0o644)
        (tree / "DEBIAN").mkdir(parents=True)
        lines = [f"{key}: {value}" for key, value in (control | fields).items() if value]
        (tree / "DEBIAN/control").write_text("\n".join([*lines, ""]))
        if script:
            (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\nset -e\n{script}\n")
            (tree / "DEBIAN/postinst").chmod(0o755)
        tree.chmod(0o755)
        run(
            "dpkg-deb",
            "--root-owner-group",
            "-Znone",
            "--build",
            str(tree),
            str(folder / f"{name}_{version}_amd64.deb"),
        )


def build_driver(folder: Path, kernel: str, version: str) -> None:
    """The packages of one version of the driver."""
    full = f"{version}-1"
    module = f"lib/modules/{kernel}/updates/dkms/nvidia.ko"
    built = f"depmod {kernel}"
    build(folder, "libcuda1", full, {}, {})
    # Like the real one: what it needs is given without an upper end, so that only a pin keeps the branch together.
    build(
        folder,
        "nvidia-driver-cuda",
        full,
        {"Depends": f"libcuda1 (>= {version}), nvidia-persistenced (>= {version})"},
        {},
    )
    for name, other, license_text in (
        ("nvidia-kernel-open-dkms", "nvidia-kernel-dkms", "Dual MIT/GPL"),
        ("nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "NVIDIA"),
    ):
        build(folder, name, full, {"Conflicts": other}, {module: kernel_module(version, license_text)}, built)
    for name in ("nvidia-persistenced", "nvidia-fabricmanager"):
        build(folder, name, full, {}, {f"lib/systemd/system/{name}.service": SERVICE.format(name=name).encode()})
    build(folder, "nvidia-modprobe", full, {}, {"usr/bin/nvidia-modprobe": MODPROBE.encode()})
    # Only the first branch has it, as packages come and go.
    if version.startswith("575."):
        build(folder, "libnvidia-legacy", full, {}, {})


def index(folder: Path) -> None:
    """Packages, Release and its signature, and the key that signed it."""
    stanzas = []
    for package in sorted(folder.glob("*.deb")):
        content = package.read_bytes()
        control = run("dpkg-deb", "--field", str(package)).strip()
        digest = hashlib.sha256(content).hexdigest()
        stanzas.append(f"{control}\nFilename: ./{package.name}\nSize: {len(content)}\nSHA256: {digest}\n")
    packages = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(packages)
    digest = hashlib.sha256(packages).hexdigest()
    date = run("date", "--utc", "--rfc-email").strip()
    release = f"Origin: MOCK\nLabel: MOCK\nDate: {date}\nSHA256:\n {digest} {len(packages)} Packages\n"
    (folder / "Release").write_text(release)
    if not run("gpg", "--batch", "--list-keys", "--with-colons", check=False).count("\nuid"):
        run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", KEY, "rsa3072", "sign", "never")
    run("gpg", "--batch", "--yes", "--clearsign", "--output", str(folder / "InRelease"), str(folder / "Release"))
    (folder / KEY_FILES[folder.parent.name]).write_text(run("gpg", "--batch", "--armor", "--export", KEY))


def run(*words: str, check: bool = True) -> str:
    """Output of a program."""
    return subprocess.run(words, check=check, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """The program."""
    folder, kernel, branches = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
    folder.mkdir(parents=True, exist_ok=True)
    for version in branches:
        build_driver(folder, kernel, version)
    build(folder, "linux-headers-test", "1", {}, {})
    build(folder, "nvidia-container-toolkit", "1.18.0-1", {}, {})
    index(folder)


if __name__ == "__main__":
    main()
