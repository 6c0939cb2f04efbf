"""The chart as a package: what is in it, and that it renders as the folder does."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
import yaml

from scripts import package
from scripts.generate import files, golden, helm
from tests.chart.rendering import only, render

SCENARIO = files.SCENARIOS / "monitoring-values.yaml"
"""It needs a file that is no template."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package.package(tmp_path_factory.mktemp("package"))


def test_the_package_is_named_after_the_charts_version(archive: Path) -> None:
    version = yaml.safe_load((files.CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    assert archive.name == f"rankzero-{version}.tgz"


def test_the_package_holds_what_a_user_needs_and_no_scenarios(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = {name.removeprefix("rankzero/") for name in tar.getnames()}
    assert {"README.md", "values.yaml", "values.schema.json", "dashboards/run.json", "templates/NOTES.txt"} <= names
    assert not any(name.startswith("ci/") for name in names)


def test_the_package_renders_as_the_folder_does(archive: Path) -> None:
    apis = [word for api in helm.OPTIONAL_APIS for word in ("--api-versions", api)]
    words = ["--namespace", helm.NAMESPACE, "--values", str(SCENARIO), *apis]
    assert helm.helm("template", golden.RELEASE, archive, *words) == golden.render(SCENARIO)


def test_the_readmes_example_is_all_that_a_release_needs() -> None:
    text = files.PACKAGE_README.read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    assert only(render(yaml.safe_load(example)), "StatefulSet")["spec"]["replicas"] == 2


def test_annotations_are_texts_as_artifact_hub_wants_them() -> None:
    annotations = yaml.safe_load((files.CHART / "Chart.yaml").read_text(encoding="utf-8"))["annotations"]
    assert all(isinstance(value, str) for value in annotations.values())
    assert all(key.startswith("artifacthub.io/") for key in annotations)
