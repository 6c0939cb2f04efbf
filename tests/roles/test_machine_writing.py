"""What roles may not write is known before they change anything (known failures, section B: a read-only /etc)."""

from __future__ import annotations

import sys
from pathlib import Path

from roles.machine.module_utils.machine import writing
from scripts import command
from scripts.cache import REPO


def test_a_file_that_is_not_there_yet_is_judged_by_what_is_there_of_its_path(tmp_path: Path) -> None:
    assert writing.unwritable([tmp_path / "not/yet/file", str(tmp_path / "file")]) == []


def test_a_read_only_file_system_is_named_also_to_root(tmp_path: Path) -> None:
    there = tmp_path / "writable"
    there.mkdir()
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    ask = "from roles.machine.module_utils.machine import writing; import sys; print(writing.unwritable(sys.argv[1:]))"

    told = command.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
            'mount -t tmpfs -o ro tmpfs "$1" && shift && exec "$@"',
            *("sh", mounted, sys.executable, "-c", ask, there / "a.conf", mounted / "b.conf", mounted / "c/d.conf"),
        ],
        cwd=REPO,
    )

    assert told.strip() == f"['{mounted}']"
