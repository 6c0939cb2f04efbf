"""The recovery benchmark: what counts as a step, what becomes of values that never came, what is compared."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench import result_file
from bench.recovery import summary
from bench.recovery.events import EVENTS, INSTALL, POD_0, POD_1, WORKER
from bench.recovery.forms import FORMS, KEYS, Form
from bench.recovery.install import chart_values, torchrun_objects
from bench.recovery.logs import first_step, last_step
from scripts.cache import REPO
from scripts.generate import files, helm
from scripts.generate.comments import load_values

LOG = """\
2026-01-02T03:04:05.100000001Z [rank0] step 9/1000  epoch 0  loss 0.5000  lr 0.01  9.1 steps/s
2026-01-02T03:04:05.900000000Z [rank0] step 10/1000  epoch 0  loss 0.5000  lr 0.01  9.1 steps/s
2026-01-02T03:04:06.000000000Z 03:04:06 rankzero: attempt 2: 2 x 1 processes
2026-01-02T03:04:06.250000000Z [rank0] resumed from step 10
2026-01-02T03:04:06.500000000Z [rank0] step 11/1000  epoch 0  loss 0.4000  lr 0.01  9.1 steps/s
2026-01-02T03:04:06.600000000Z [rank0] step 12/1000  epoch 0  loss 0.4000  lr 0.01  9.1 steps/s
"""


def seconds(clock: str) -> float:
    return datetime.fromisoformat(f"2026-01-02T03:04:{clock}Z").timestamp()


def times(**values: list[float | None]) -> dict[str, list[float | None]]:
    """Samples of one form; every event that is not named took one second."""
    return {event: values.get(event, [1.0]) for event in EVENTS}


# --- Logs -------------------------------------------------------------------------------------------------


def test_a_step_that_is_still_printed_after_the_failure_is_not_the_recovery() -> None:
    """Ranks print on until they notice, and while they save; the next step is that of the resumed script."""
    since = seconds("05.5")
    assert first_step(LOG, since=since, resumed=False) == seconds("05.9")
    assert first_step(LOG, since=since, resumed=True) == seconds("06.5")


def test_a_script_that_resumed_before_the_failure_has_not_resumed_from_it() -> None:
    assert first_step(LOG, since=seconds("06.3"), resumed=True) is None


def test_there_is_no_step_in_an_empty_log_or_in_one_that_ends_early() -> None:
    assert first_step("", since=0.0, resumed=False) is None
    assert first_step("the rest of a line\n2026-01-02T03:04:05Z step\n", since=0.0, resumed=False) is None
    assert last_step("") == 0
    assert last_step(LOG) == 12


@pytest.mark.parametrize("example", ["drill.py", "mnist.py"])
def test_the_words_that_are_looked_for_are_those_of_the_examples(example: str) -> None:
    """A script that said it otherwise would seem never to recover."""
    assert "checkpoints.resume()" in (REPO / "trainer" / "examples" / example).read_text()
    assert "resumed from step {step}" in (REPO / "trainer/rankzero/train/checkpoint/checkpoints.py").read_text()


# --- Statistics -------------------------------------------------------------------------------------------


def test_a_value_that_never_came_counts_as_longer_than_all_others() -> None:
    found = summary.spread([3.0, None, 1.0], give_up=150)
    assert found["values_s"] == [3.0, None, 1.0]
    assert found["censored"] == 1
    assert (found["median_s"], found["min_s"], found["max_s"]) == (3.0, 1.0, None)
    assert found["shown"] == {"median": "3.0", "min": "1.0", "max": ">150"}


def test_a_median_that_never_came_is_shown_as_longer_than_the_limit() -> None:
    found = summary.spread([None, None, 1.0], give_up=150)
    assert found["median_s"] is None
    assert found["shown"]["median"] == ">150"


def test_ratios_are_those_of_the_medians_and_lower_bounds_for_what_never_came() -> None:
    document = summary.document(
        {
            "rankzero": times(worker_killed=[0.5, 0.5, 9.0]),
            "torchrun-static": times(worker_killed=[5.0]),
            "torchrun-c10d": times(worker_killed=[None]),
        },
        give_up=150,
    )
    ratios = {form: events[WORKER]["ratio_to_ours"] for form, events in document["times"].items()}
    assert ratios == {"rankzero": "1.0", "torchrun-static": "10.0", "torchrun-c10d": ">300.0"}


def test_without_a_measurement_of_ours_there_are_no_ratios_and_no_targets() -> None:
    document = summary.document({"torchrun-c10d": times()}, give_up=150)
    assert document["times"]["torchrun-c10d"][WORKER]["ratio_to_ours"] == ""
    assert document["targets"] == {}


@pytest.mark.parametrize(
    ("values", "name", "value", "met"),
    [
        ({WORKER: [1.5]}, "worker_killed_s", 1.5, True),
        ({WORKER: [1.51]}, "worker_killed_s", 1.51, False),
        ({POD_0: [4.0], POD_1: [11.0]}, "pod_deleted_s", 11.0, False),
        ({POD_0: [None], POD_1: [1.0]}, "pod_deleted_s", None, False),
        ({INSTALL: [9.0, 30.0, 8.0]}, "install_to_first_step_s", 9.0, True),
    ],
)
def test_targets_are_judged_by_the_median_and_by_the_worse_of_both_pods(
    values: dict[str, list[float | None]], name: str, value: float | None, met: bool
) -> None:
    targets = summary.document({"rankzero": times(**values)}, give_up=150)["targets"]
    assert (targets[name]["value"], targets[name]["met"]) == (value, met)


def test_the_table_has_a_row_for_each_event_and_a_column_for_each_form_that_was_measured() -> None:
    samples = {"rankzero": times(), "torchrun-c10d": times(worker_killed=[None])}
    heading, *rows = summary.table(summary.document(samples, give_up=150))
    assert heading == ["seconds", "rankzero", "StatefulSet + torchrun, c10d"]
    assert [row[0] for row in rows] == list(EVENTS.values())
    assert rows[1][1:] == ["1.0 (1.0 to 1.0)", ">150 (>150 to >150), >150.0 x"]


def test_a_result_file_is_whole_and_says_where_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_file, "FOLDER", tmp_path)
    assert result_file.read("some") is None
    path = result_file.write("some", {"machine": result_file.machine()})
    assert list(tmp_path.iterdir()) == [path]
    assert result_file.read("some") == json.loads(path.read_text())
    assert json.loads(path.read_text())["machine"]["cores"] >= 1


# --- Forms ------------------------------------------------------------------------------------------------


def torchrun_container(form: Form) -> dict[str, Any]:
    container: dict[str, Any] = torchrun_objects(form, "r/t:1")[-1]["spec"]["template"]["spec"]["containers"][0]
    return container


def test_ours_renders_by_the_chart_that_is_here(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(chart_values("registry.example.com/rankzero/trainer:1")))
    assert load_values(files.VALUES).keys() >= chart_values("r/t:1").keys()
    assert "/opt/rankzero/examples/drill.py" in helm.template("recovery", values)


def test_all_forms_run_the_same_image_script_and_settings() -> None:
    values = chart_values("r/t:1")
    for form in FORMS[1:]:
        container = torchrun_container(form)
        command = container["command"][-1]
        assert container["image"] == "r/t:1"
        assert command.endswith(" ".join([values["launch"]["script"], *values["launch"]["args"]]))
        config = next(item for item in torchrun_objects(form, "r/t:1") if item["kind"] == "ConfigMap")
        assert json.loads(config["data"]["train.yaml"])["train"] == values["train"]


def test_the_torchrun_forms_avoid_the_known_traps() -> None:
    """Known failures A4 (who hosts the store), A12 (order), A18 (interface), A24 (PID 1)."""
    for form in FORMS[1:]:
        service, *_, workload = torchrun_objects(form, "r/t:1")
        container = torchrun_container(form)
        assert service["spec"]["publishNotReadyAddresses"]
        assert workload["spec"]["podManagementPolicy"] == "Parallel"
        assert {"name": "GLOO_SOCKET_IFNAME", "value": "eth0"} in container["env"]
        assert container["command"][-1].startswith("exec torchrun ")
    assert "is_host" in torchrun_container(FORMS[2])["command"][-1]


def test_tables_are_made_without_what_talks_to_a_cluster() -> None:
    """The guides' generator reads them, also where no cluster was ever made."""
    loaded = "import sys; from bench.recovery import summary; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=REPO, capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "bench.recovery.forms" in modules
    assert [name for name in modules if name.startswith(("kubernetes", "scripts.lab", "rankzero.cluster"))] == []


def test_forms_have_keys_for_the_command_line() -> None:
    assert KEYS == ("rankzero", "torchrun-static", "torchrun-c10d")
