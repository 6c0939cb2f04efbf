"""What the modules of all roles read of what the roles have left on a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.machine.module_utils.machine.records import read_record, read_text


def test_a_node_without_a_record_has_an_empty_one(tmp_path: Path) -> None:
    assert read_record(tmp_path / "record.json") == {}


def test_a_record_is_what_the_role_wrote(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"held": ["libcuda1"]}', encoding="utf-8")

    assert read_record(tmp_path / "record.json") == {"held": ["libcuda1"]}


@pytest.mark.parametrize("text", ['{"services": [', "[]", "null", ""])
def test_a_damaged_record_is_refused_with_its_path_and_what_to_do(text: str, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=r"record\.json is no.* Remove it"):
        read_record(tmp_path / "record.json")


def test_a_record_of_another_shape_is_refused_by_what_is_odd_in_it(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"sysctls": 5, "asked": {}}', encoding="utf-8")

    with pytest.raises(ValueError, match=r"record\.json is not what the role writes: see sysctls in it\. Remove it"):
        read_record(tmp_path / "record.json", asked=dict, sysctls=dict, files=list)


def test_a_file_is_read_as_it_is_and_one_that_is_not_there_is_none(tmp_path: Path) -> None:
    file = tmp_path / "limits.conf"
    file.write_bytes(b" a = \xff\n\n")

    assert read_text(file) == " a = �\n\n"
    assert [read_text(path) for path in (tmp_path, tmp_path / "gone", file / "below")] == [None, None, None]
