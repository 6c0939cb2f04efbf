"""The module that sets kernel values: on files in place of /proc/sys, and on the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roles.host_tuning.library import host_tuning_write


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A tree like /proc/sys."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/first").write_text("4096\t16384\t4194304\n", encoding="utf-8")
    (tmp_path / "net/second").write_text("1\n", encoding="utf-8")
    (tmp_path / "net/third").write_text("1\n", encoding="utf-8")
    return tmp_path


def test_values_that_differ_are_written_and_those_of_before_returned(kernel: Path) -> None:
    before = host_tuning_write.write({"net.first": "4096 16384 8388608", "net.second": "1"}, kernel)

    assert before == {"net.first": "4096 16384 4194304"}
    assert host_tuning_write.show("net.first", kernel) == "4096 16384 8388608"


def test_a_second_time_nothing_changes(kernel: Path) -> None:
    host_tuning_write.write({"net.second": "2"}, kernel)

    assert host_tuning_write.write({"net.second": "2"}, kernel) == {}


def test_a_key_that_is_not_there_changes_nothing(kernel: Path) -> None:
    """Known failure B23: a wrong name."""
    with pytest.raises(host_tuning_write.RefusedError, match="No such file") as refused:
        host_tuning_write.write({"net.second": "2", "net.sceond": "2"}, kernel)

    assert (refused.value.key, refused.value.kept) == ("net.sceond", {})
    assert host_tuning_write.show("net.second", kernel) == "1"


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="writes a kernel value, which stays what it is")
KEY = "fs.inotify.max_user_instances"


@AS_ROOT
def test_the_real_kernel_refuses_what_is_no_number_and_keeps_what_it_had() -> None:
    before = host_tuning_write.show(KEY)

    with pytest.raises(host_tuning_write.RefusedError, match="Invalid argument") as refused:
        host_tuning_write.write({KEY: "many"})

    assert refused.value.key == KEY
    assert host_tuning_write.show(KEY) == before


@AS_ROOT
def test_a_value_that_the_real_kernel_shows_otherwise_is_refused_and_taken_back() -> None:
    before = host_tuning_write.show(KEY)

    with pytest.raises(host_tuning_write.RefusedError, match=f"it made '{before}' of it") as refused:
        host_tuning_write.write({KEY: hex(int(before))})

    assert (refused.value.key, refused.value.kept) == (KEY, {})
    assert host_tuning_write.show(KEY) == before


@AS_ROOT
def test_what_was_written_before_a_refusal_is_as_it_was(kernel: Path) -> None:
    """Known failure B23: nothing is left half-done."""
    (kernel / "refused").symlink_to(host_tuning_write.PROC_SYS / KEY.replace(".", "/"))

    with pytest.raises(host_tuning_write.RefusedError) as refused:
        host_tuning_write.write({"net.second": "2", "refused": "many"}, kernel)

    assert (refused.value.key, refused.value.kept) == ("refused", {})
    assert host_tuning_write.show("net.second", kernel) == "1"
