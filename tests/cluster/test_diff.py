"""``rankzero diff``: differences in words, and what the command says when it cannot compare."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rankzero import cli, contract
from rankzero.cluster import diff
from rankzero.cluster.helm import Release, overlaid
from rankzero.cluster.paths import ABSENT, differences
from scripts.cache import REPO
from scripts.generate import files, helm, upgrades
from scripts.generate.comments import load_values
from tests.chart.rendering import minimal, render


def release(changes: dict[str, Any], *, name: str = "mnist", title: str = "", chart: str = "rankzero 1") -> Release:
    values = minimal(changes)
    whole = overlaid(load_values(files.VALUES), values)
    return Release(name, title or name, chart, values, whole, render(values, release=name))


def told(before: Release, after: Release) -> tuple[int, list[str]]:
    document = diff.compare(before, after)
    json.dumps(document)  # -o json prints the same
    return diff.status(document), diff.lines(document)


def test_nothing_differs() -> None:
    assert told(release({}), release({}, title="mnist after the upgrade")) == (
        contract.EXIT_OK,
        ["mnist (rankzero 1) -> mnist after the upgrade (rankzero 1)", "  nothing differs"],
    )


def test_values_image_settings_and_effect_are_told() -> None:
    status, lines = told(release({"nodes": 2}), release({"train.epochs": 5, "image.tag": "2", "nodes": 3}))
    assert status == contract.EXIT_DIFFERENT
    assert "  train.epochs: not set -> 5" in lines
    assert (
        '  trainer: "registry.example.com/rankzero/trainer:0.1.0-g1a2b3c4" -> "registry.example.com/rankzero/trainer:2"'
        in lines
    )
    assert lines[lines.index("in train.yaml, from these values") + 1] == "  launch.nodes: 2 -> 3"
    assert lines[-1].startswith("  restarts the group: StatefulSet mnist (")


def test_a_setting_that_is_a_value_is_told_once() -> None:
    _, lines = told(release({}), release({"train.epochs": 5}))
    assert len([line for line in lines if "train.epochs" in line]) == 1


def test_what_an_upgrade_cannot_do_has_a_status_of_its_own() -> None:
    status, lines = told(release({"checkpoints.size": "2Gi"}), release({"checkpoints.size": "1Gi"}))
    assert status == contract.EXIT_NOT_BY_UPGRADE
    assert any(
        line.startswith("  refused: PersistentVolumeClaim mnist-checkpoints (resources.requests") for line in lines
    )


def test_two_releases_have_differences_and_no_effects() -> None:
    """Their objects all have other names, which says nothing."""
    status, lines = told(release({}), release({"train.epochs": 5}, name="mnist-b"))
    assert status == contract.EXIT_DIFFERENT
    assert lines[1:] == ["values", "  train.epochs: not set -> 5"]
    assert told(release({}), release({}, name="mnist-b"))[0] == contract.EXIT_OK


def test_another_chart_is_a_difference_that_may_do_nothing() -> None:
    status, lines = told(release({}), release({}, chart="rankzero 2"))
    assert status == contract.EXIT_DIFFERENT
    assert lines[-1] == "  nothing: all objects stay as they are"


def test_defaults_of_another_chart_are_named_apart_from_the_values_that_somebody_has_set() -> None:
    """A new chart has new keys, and nobody has asked for those."""
    before, after = release({}), release({"train.epochs": 5}, chart="rankzero 2")
    after.values["newSection"] = {"enabled": False}
    _, lines = told(before, after)
    assert lines[1:3] == ["values", "  train.epochs: not set -> 5"]
    assert "defaults of the chart: newSection" in lines


def test_a_value_that_is_set_to_what_was_the_default_is_no_difference() -> None:
    assert told(release({}), release({"nodes": 1}))[0] == contract.EXIT_OK


def test_a_long_value_is_cut_for_people_and_whole_for_programs() -> None:
    document = diff.compare(release({}), release({"launch.args": ["x" * 500]}))
    assert max(map(len, diff.lines(document))) < 300
    assert document["values"][0]["to"] == ["x" * 500]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", 1, 2)]),
        ({"a": 1}, {}, [("a", 1, ABSENT)]),
        ({}, {"a": None}, [("a", ABSENT, None)]),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [("a", [1, 2], [1, 3])]),
        ({"a": [{"name": "x", "v": 1}]}, {"a": [{"name": "y"}, {"name": "x", "v": 2}]},
         [("a[x].v", 1, 2), ("a[y]", ABSENT, {"name": "y"})]),
        ({"a": [{"name": "x", "v": 1}, {"name": "x"}]}, {"a": [{"name": "x"}]},
         [("a", [{"name": "x", "v": 1}, {"name": "x"}], [{"name": "x"}])]),
        ({"a": []}, {"a": [{"name": "x"}]}, [("a", [], [{"name": "x"}])]),
        ({"a": {}}, {"a": {}}, []),
    ],
)  # fmt: skip
def test_documents_differ_in_paths(old: Any, new: Any, found: list[tuple[str, Any, Any]]) -> None:
    assert list(differences(old, new)) == found


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(["diff", *arguments])
    return end.value.code, capsys.readouterr().err


def test_without_helm_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert said(capsys, "a", "b") == (1, "rankzero: helm is not on the PATH\n  fix: install Helm 3.14 or newer\n")


def test_helms_own_words_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Real Helm, without a cluster."""
    monkeypatch.setenv("PATH", str(helm.program().parent), prepend=":")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    status, text = said(capsys, "mnist", "mnist-b")
    assert status == 1
    assert text.startswith("rankzero: `helm history mnist`: Error: ")
    assert "Traceback" not in text


def stand_in_for_helm(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """A program of that name which runs ``script``, before the real one on the PATH."""
    (folder / "helm").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / "helm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_helm_that_was_killed_in_the_middle_leaves_a_hint_at_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Helm's own sentence names no way; the release stays locked until somebody rolls back or uninstalls."""
    words = "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress"
    stand_in_for_helm(monkeypatch, tmp_path, f"echo '{words}' >&2\nexit 1")
    status, text = said(capsys, "mnist", "mnist-b")
    assert status == 1
    assert words in text
    assert "`helm rollback` undoes a pending upgrade, `helm uninstall` a pending install" in text


def test_a_release_of_which_only_the_history_is_left_is_not_compared_as_if_it_ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`helm uninstall --keep-history`. Helm's answer, as Helm 4 gives it, from a script."""
    answer = '[{"revision":1,"status":"superseded"},{"revision":2,"status":"uninstalled"}]'
    stand_in_for_helm(monkeypatch, tmp_path, f"echo '{answer}'")
    status, text = said(capsys, "mnist", "mnist-b")
    assert (status, text) == (
        1,
        "rankzero: mnist is uninstalled\n  fix: name a revision of it, mnist@2 say\n",
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "b", "--set", "nodes=2"], "a second release (b) and values for an upgrade"),
        (["a@x", "b"], "a@x names no revision"),
        (["a@1"], "a@1 is a revision"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = said(capsys, *arguments)
    assert status == contract.EXIT_USAGE
    assert sentence in text
    assert "fix: " in text


GUIDE = (REPO / "docs" / "upgrades.md").read_text(encoding="utf-8")


def test_the_guides_table_is_what_the_chart_and_the_rules_give() -> None:
    """`python -m scripts.generate --golden` writes it."""
    assert upgrades.render() == GUIDE


COMMANDS = re.findall(r"^rankzero (diff .+)$|`rankzero (diff [^`]+)`", GUIDE.replace("\\\n", ""), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_guides_commands_are_understood(command: tuple[str, str]) -> None:
    options = cli.parser().parse_args(shlex.split("".join(command)))
    assert options.first == "mnist"
