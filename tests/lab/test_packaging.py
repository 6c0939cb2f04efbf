"""The commands of docs/packaging.md, with the lab's registry in the place of a real one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from scripts import command, package
from scripts.cache import REPO
from scripts.lab import surroundings
from scripts.lab.settings import registry_host
from tests.lab.conftest import Namespace

pytestmark = [pytest.mark.lab]

GUIDE = (REPO / "docs" / "packaging.md").read_text(encoding="utf-8")
WITHOUT_TLS = "--plain-http"
VALUES = {
    "image": {"repository": "registry.example.com/rankzero/trainer", "tag": "0"},
    "launch": {"script": "/opt/rankzero/examples/mnist.py"},
    "resources": {"gpus": 0},
    "scheduling": {"nodeSelector": {"example.com/no-such": "node"}},
}
"""Pods stay Pending: this is about the package."""


def guide_commands() -> dict[str, list[str]]:
    """By what they do: `make package`, `helm push`, `helm install`."""
    (block,) = re.findall(r"^```bash\n(.+?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    lines = block.replace("registry.example.com", registry_host()).splitlines()
    return {" ".join(words[:2]): words for words in map(shlex.split, lines)}


def test_a_chart_is_packaged_pushed_and_installed_from_the_registry(namespace: Namespace, tmp_path: Path) -> None:
    commands = guide_commands()
    assert commands.keys() == {"make package", "helm push", "helm install"}
    (tmp_path / "experiment.yaml").write_text(json.dumps(VALUES), encoding="utf-8")
    package.package(tmp_path / "build")  # what `make package` does, elsewhere
    for name in ("helm push", "helm install"):
        words = [*commands[name], WITHOUT_TLS, "--namespace", namespace.name]
        said = command.run(words, cwd=tmp_path, env=surroundings.environment(), timeout=60)
    assert "mnist: 1 x 1 ranks will run /opt/rankzero/examples/mnist.py." in said
    made = namespace.kubectl("get", "statefulset,service,pvc", "--output", "name").split()
    assert made == ["statefulset.apps/mnist", "service/mnist", "persistentvolumeclaim/mnist-checkpoints"]
    assert json.loads(namespace.kubectl("get", "statefulset", "mnist", "--output", "json"))["spec"]["replicas"] == 1
