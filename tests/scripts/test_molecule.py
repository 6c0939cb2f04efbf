"""How the scenarios of molecule are run: on which nodes, over which road, and which are known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import result_file
from rankzero.errors import ConfigError
from scripts import molecule
from scripts.lab.node_image import RECIPE


def test_each_folder_with_a_scenario_is_one() -> None:
    assert "host_tuning" in molecule.scenarios()
    assert "shared" not in molecule.scenarios()


def test_the_road_into_a_node_uses_a_file_that_the_node_image_brings() -> None:
    settings = re.search(r"sshd -i -f (\S+?)\"", molecule.ssh_arguments())

    assert settings is not None
    assert Path(RECIPE, "rootfs", settings[1].lstrip("/")).is_file()


def test_a_scenario_that_is_not_there_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        molecule.main(["--scenario", "host_tunning"])

    assert "host_tuning" in capsys.readouterr().err


def test_scenarios_that_take_long_are_run_when_asked_for_and_their_ends_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(_words: object, name: str, _environment: object) -> int:
        ran.append(name)
        return 0

    monkeypatch.setattr(molecule, "images", lambda _: {})
    monkeypatch.setattr(molecule, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(molecule, "_run", run)
    monkeypatch.setattr(result_file, "FOLDER", tmp_path)

    assert molecule.main([]) == 0
    quick, ran[:] = list(ran), []
    assert result_file.read(molecule.RESULTS) is None
    assert molecule.main(["--long"]) == 0

    assert sorted([*quick, *ran]) == molecule.scenarios()
    assert ran == list(molecule.LONG)
    kept = result_file.read(molecule.RESULTS)
    assert kept is not None
    assert {name: entry["passed"] for name, entry in kept["scenarios"].items()} == dict.fromkeys(ran, True)


def test_a_command_that_leaves_nodes_behind_is_for_one_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(molecule, "scenarios", lambda: ["one", "two"])

    with pytest.raises(ConfigError, match=r"add --scenario one\|two"):
        molecule.main(["converge"])


def test_an_image_of_another_suite_is_built_only_for_a_scenario_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[str] = []
    for name, text in {"plain": "", "newer": "image: ${RANKZERO_NODE_IMAGE_TRIXIE}\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "molecule.yml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(molecule, "SCENARIOS", tmp_path)
    monkeypatch.setattr("scripts.lab.cluster.build_node_image", lambda _, *suite: built.append(*suite or ("bookworm",)))

    molecule.images(["plain"])
    molecule.images(["plain", "newer"])

    assert built == ["bookworm", "bookworm", "trixie"]
