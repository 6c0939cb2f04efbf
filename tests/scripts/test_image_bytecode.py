"""The script that compiles modules inside the image builds."""

from __future__ import annotations

import importlib.util
import py_compile
import sys
from pathlib import Path

from scripts import command
from scripts.cache import REPO

SCRIPT = Path(REPO, "trainer", "compile_bytecode.py")
UNCHECKED_HASH = (1).to_bytes(4, "little")
"""The flags word of such bytecode, bytes 4 to 8 of the file (PEP 552)."""


def compiled(module: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(module)))


def test_modules_without_bytecode_get_one_that_no_file_time_can_invalidate(tmp_path: Path) -> None:
    module = tmp_path / "package" / "module.py"
    module.parent.mkdir()
    module.write_text("x = 1\n", encoding="utf-8")

    output = command.run([sys.executable, SCRIPT, tmp_path])

    assert output == "compiled 1 modules, skipped 0\n"
    assert compiled(module).read_bytes()[4:8] == UNCHECKED_HASH


def test_bytecode_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("x = 1\n", encoding="utf-8")
    py_compile.compile(str(module), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    before = compiled(module).read_bytes()

    assert command.run([sys.executable, SCRIPT, tmp_path]) == "compiled 0 modules, skipped 0\n"
    assert compiled(module).read_bytes() == before


def test_a_file_that_is_no_valid_python_is_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "template.py").write_text("{{ not python }\n", encoding="utf-8")
    (tmp_path / "latin.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0\n")

    assert command.run([sys.executable, SCRIPT, tmp_path]) == "compiled 1 modules, skipped 3\n"
