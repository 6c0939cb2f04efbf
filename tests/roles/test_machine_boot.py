"""Which kernel boots next, from GRUB's files as Debian's and Red Hat's tools write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.machine.module_utils.machine import boot
from tests.roles.machine_tree import put

HEADER = """\
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set boot_once=true
else
   set default="{default}"
fi
"""
ENTRY = """\
menuentry 'Ubuntu, with Linux {release}' $menuentry_id_option 'gnulinux-{release}-advanced-5f0c' {{
\tlinux\t/boot/vmlinuz-{release} root=UUID=5f0c ro
\tinitrd\t/boot/initrd.img-{release}
}}
"""
NEW, OLD = "6.8.0-90-generic", "6.8.0-9-generic"
SUBMENU = "gnulinux-advanced-5f0c>gnulinux-{}-advanced-5f0c"


def debian(root: Path, default: str = "0", first: str = NEW, **environment: str) -> str | None:
    """What boots next where the menu has a default and a first entry, and GRUB's environment these values."""
    entries = "".join(ENTRY.format(release=release) for release in (first, NEW, OLD))
    put(root / "boot/grub/grub.cfg", HEADER.format(default=default) + entries)
    values = "".join(f"{key}={value}\n" for key, value in environment.items())
    put(root / "boot/grub/grubenv", f"# GRUB Environment Block\n{values}######")
    return boot.next_kernel(root, [NEW, OLD])


@pytest.mark.parametrize("release", [NEW, OLD])
def test_the_first_entry_of_the_menu_boots_whether_or_not_it_is_the_newest(release: str, tmp_path: Path) -> None:
    assert debian(tmp_path, first=release) == release


def test_a_saved_choice_holds_and_one_for_the_next_boot_goes_before_it(tmp_path: Path) -> None:
    saved = SUBMENU.format(OLD)

    assert debian(tmp_path, "${saved_entry}", saved_entry=saved) == OLD
    assert debian(tmp_path, "${saved_entry}") == NEW
    assert debian(tmp_path, "0", saved_entry=saved) == NEW
    assert debian(tmp_path, "${saved_entry}", saved_entry=saved, next_entry=SUBMENU.format(NEW)) == NEW


def test_a_title_in_the_menu_names_its_kernel(tmp_path: Path) -> None:
    assert debian(tmp_path, f"Advanced options for Ubuntu>Ubuntu, with Linux {OLD}") == OLD


@pytest.mark.parametrize("default", ["1>2", "Memory test (memtest86+)", SUBMENU.format("6.8.0-905-generic")])
def test_what_names_no_kernel_that_is_there_is_not_guessed(default: str, tmp_path: Path) -> None:
    assert debian(tmp_path, default) is None


def test_a_first_entry_without_its_kernel_is_not_guessed(tmp_path: Path) -> None:
    assert debian(tmp_path, first="6.8.0-1-removed") is None


def test_red_hat_s_family_saves_the_entry_s_name_and_takes_the_newest_without_one(tmp_path: Path) -> None:
    new, old = "5.14.0-570.62.1.el9_6.x86_64", "5.14.0-570.58.1.el9_6.x86_64"
    put(tmp_path / "boot/grub2/grub.cfg", HEADER.format(default="${saved_entry}") + "insmod blscfg\nblscfg\n")

    assert boot.next_kernel(tmp_path, [new, old]) == new
    put(tmp_path / "boot/grub2/grubenv", f"saved_entry=d1d0f6b2-{old}\nkernelopts=ro\n")
    assert boot.next_kernel(tmp_path, [new, old]) == old
    realtime = f"{old}+rt"
    put(tmp_path / "boot/grub2/grubenv", f"saved_entry=d1d0f6b2-{realtime}\n")
    assert boot.next_kernel(tmp_path, [new, realtime, old]) == realtime


def test_without_grub_only_a_kernel_that_is_alone_is_certain(tmp_path: Path) -> None:
    assert boot.next_kernel(tmp_path, [NEW, OLD]) is None
    assert boot.next_kernel(tmp_path, [NEW]) == NEW
    assert boot.next_kernel(tmp_path, []) is None
