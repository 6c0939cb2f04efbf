"""Where the training script comes from: what a source becomes in the pods, and which values are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankzero import contract
from tests.chart.rendering import Manifest, environment, minimal, pod_spec, refusals, render, trainer
from tests.chart.test_objects import notes

FILES = {"code.files": {"train.py": "print(1)\n", "model.py": "x = 1\n"}, "launch.script": "/workspace/train.py"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
URL = "https://git.example.com/a.git"
GIT = {"code.git": {"repository": URL, "revision": COMMIT}, "launch.script": "/workspace/train.py"}


def source(manifests: list[Manifest]) -> Manifest:
    """The volume with the code."""
    found: Manifest = next(volume for volume in pod_spec(manifests)["volumes"] if volume["name"] == "code")
    return {key: value for key, value in found.items() if key != "name"}


def mount(manifests: list[Manifest]) -> Manifest:
    """How the trainer has it."""
    found: Manifest = next(mount for mount in trainer(manifests)["volumeMounts"] if mount["name"] == "code")
    return {key: value for key, value in found.items() if key != "name"}


def code_objects(manifests: list[Manifest]) -> list[Manifest]:
    """ConfigMaps with code."""
    return [manifest for manifest in manifests if "-code-" in manifest["metadata"]["name"]]


def test_without_a_source_the_script_is_in_the_image() -> None:
    manifests = render(minimal({}))
    assert "code" not in {volume["name"] for volume in pod_spec(manifests)["volumes"]}
    assert "initContainers" not in pod_spec(manifests)
    assert code_objects(manifests) == []


def test_files_of_the_values_lie_in_a_configmap_that_never_changes() -> None:
    manifests = render(minimal(FILES))
    (kept,) = code_objects(manifests)
    assert kept["data"] == FILES["code.files"]
    assert kept["immutable"] is True
    assert source(manifests) == {"configMap": {"name": kept["metadata"]["name"]}}
    assert mount(manifests) == {"mountPath": "/workspace", "readOnly": True}


def test_a_script_on_disk_arrives_byte_for_byte(tmp_path: Path) -> None:
    """`--set-file`, as the guide has it."""
    script = tmp_path / "train.py"
    script.write_text('#!/usr/bin/env python3\n# {{ no template }}\nprint("a: b", \'c\')\n\n\tx = """\n  y"""\n')
    extra = ["--set-file", rf"code.files.train\.py={script}"]
    (kept,) = code_objects(render(minimal({"launch.script": "/workspace/train.py"}), extra=extra))
    assert kept["data"] == {"train.py": script.read_text()}


@pytest.mark.parametrize(
    "content", ["# \u8bad\u7ec3\n".encode("gbk"), b"\x93NUMPY\x01\x00", "\ufffe".encode()], ids=repr
)
def test_a_file_that_is_no_text_is_refused_and_not_kept_with_other_characters(content: bytes, tmp_path: Path) -> None:
    """Helm's toYaml replaces what is no UTF-8 without a word, or leaves out all files at once."""
    (tmp_path / "other").write_bytes(content)
    (tmp_path / "plain").write_text("# \u8bad\u7ec3\n", encoding="utf-8")
    extra = [
        part for name in ("other", "plain") for part in ("--set-file", rf"code.files.{name}\.py={tmp_path / name}")
    ]
    assert refusals(minimal({"launch.script": "/workspace/plain.py"}), extra=extra) == [
        "code.files[other.py] is no plain text in UTF-8: save it as such, or bring it by code.git, a claim or the image"
    ]


OTHERS: list[dict[str, Any]] = [
    {**FILES, "code.files": {"train.py": "print(2)\n", "model.py": "x = 1\n"}},
    {"code.configMap": "scripts"},
    {"code.claim": "code"},
    {"code.hostPath": {"path": "/opt/training-code"}},
    GIT,
    {**GIT, "code.git": {"repository": URL, "revision": "v1.0"}},
]


def test_pods_with_other_code_are_of_another_version_of_the_release() -> None:
    """They would train one model with two programs: the launcher compares this hash."""
    hashes = [environment(render(minimal(changes)))[contract.ENV_CONFIG_HASH] for changes in [{}, FILES, *OTHERS]]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    ("values", "volume"),
    [
        ({"configMap": "123"}, {"configMap": {"name": "123"}}),
        ({"claim": "123"}, {"persistentVolumeClaim": {"claimName": "123"}}),
        ({"nfs": {"server": "10", "path": "/a"}}, {"nfs": {"server": "10", "path": "/a"}}),
        ({"hostPath": {"path": "/opt/code"}}, {"hostPath": {"path": "/opt/code", "type": "Directory"}}),
    ],
)
def test_existing_code_is_mounted_read_only_where_the_values_say(
    values: dict[str, Any], volume: dict[str, Any]
) -> None:
    manifests = render(minimal({"code": {**values, "mountPath": "/src", "subPath": "vision"}}))
    assert source(manifests) == volume
    assert mount(manifests) == {"mountPath": "/src", "readOnly": True, "subPath": "vision"}


def test_a_script_that_writes_beside_itself_may_be_allowed_to() -> None:
    manifests = render(minimal({"code": {"hostPath": {"path": "/opt/code"}, "readOnly": False}}))
    assert mount(manifests)["readOnly"] is False


def test_a_git_revision_is_fetched_before_the_trainer_starts() -> None:
    changes = {**GIT, "code.subPath": "vision", "network.env": {"HTTPS_PROXY": "http://proxy:3128"}}
    manifests = render(minimal(changes))
    (init,) = pod_spec(manifests)["initContainers"]
    assert init["image"] == trainer(manifests)["image"]
    assert init["command"] == ["rankzero", "fetch-code"]
    assert init["args"] == [URL, COMMIT, contract.CODE_CHECKOUT_PATH]
    assert init["env"] == [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
    ]
    assert init["securityContext"] == trainer(manifests)["securityContext"]
    assert source(manifests) == {"emptyDir": {}}
    # kubelet joins them: what lies at /code/checkout there is at /workspace here
    folder, _, name = contract.CODE_CHECKOUT_PATH.rpartition("/")
    assert {"name": "code", "mountPath": folder} in init["volumeMounts"]
    assert mount(manifests) == {"mountPath": "/workspace", "readOnly": True, "subPath": f"{name}/vision"}


def test_only_the_step_that_fetches_sees_the_secret_of_the_repository() -> None:
    git = {"repository": URL, "revision": COMMIT, "secret": "123"}
    manifests = render(minimal({**GIT, "code.git": git}))
    (init,) = pod_spec(manifests)["initContainers"]
    secret = {"name": "code-credentials", "mountPath": contract.CODE_CREDENTIALS_PATH, "readOnly": True}
    assert secret in init["volumeMounts"]
    assert "code-credentials" not in {mount["name"] for mount in trainer(manifests)["volumeMounts"]}
    (volume,) = (volume for volume in pod_spec(manifests)["volumes"] if volume["name"] == "code-credentials")
    assert volume["secret"] == {"secretName": "123", "defaultMode": 0o440}


@pytest.mark.parametrize(("memory", "wanted"), [("", "1Gi"), ("200Gi", "200Gi")])
def test_the_step_that_fetches_keeps_a_guaranteed_pod_guaranteed(memory: str, wanted: str) -> None:
    """And its CPU is no whole one, which a node would have to pin (kubernetes#110306)."""
    (init,) = pod_spec(render(minimal({**GIT, "resources.memory": memory})))["initContainers"]
    assert init["resources"]["limits"] == init["resources"]["requests"] == {"cpu": "500m", "memory": wanted}


def git(**values: str) -> dict[str, Any]:
    return {"code.git": {"repository": URL, "revision": COMMIT, **values}}


BRANCH = "code.git.revision is {0}, a branch, which names other code tomorrow: set it to a full commit hash (`git rev-parse {0}`) or a tag"  # noqa: E501
PART = "code.git.revision is {0}, a part of a commit hash, which servers do not look up: set it to the full one (`git rev-parse {0}`)"  # noqa: E501

RELATIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"code": {"claim": "a", "configMap": "b"}},
        "code has configMap and claim as its source: keep one of files, configMap, claim, nfs, hostPath and git",
    ),
    (
        {**git(), "code.files": {"a.py": ""}},
        "code has files and git as its source: keep one of files, configMap, claim, nfs, hostPath and git",
    ),
    (
        {"code.subPath": "vision"},
        "code.subPath is vision but code has no source: set one, or leave it out for a script in the image",
    ),
    (
        {**FILES, "launch.script": "/workspace/main.py"},
        "launch.script is /workspace/main.py but code.files has model.py, train.py: add the file, e.g. "
        r"`--set-file code.files.main\.py=PATH`, or name one of these",
    ),
    (
        {"code.files": {"train.py": "#" * 1000001}},
        "code.files holds 1000001 bytes, and a ConfigMap at most 1000000 of them: use code.git, a claim or the image",
    ),
    (
        {"code": {"configMap": "a", "readOnly": False}},
        "code.readOnly is false but a ConfigMap cannot be written to: remove it and write below RANKZERO_STATE_DIR or "
        "/tmp",
    ),
    (
        {**git(), "hami.enabled": True},
        "code.git is set but hami.enabled is true, and HAMi loses track of the cards of pods that have an init "
        "container: put the code into the image, a ConfigMap or a volume",
    ),
    (git(revision=""), f"code.git.revision is empty: set it to a full commit hash or a tag of {URL}"),
    (
        git(repository=""),
        "code.git.repository is empty: set it to the URL of the repository, or remove code.git",
    ),
    *((git(revision=name), BRANCH.format(name)) for name in ("main", "HEAD", "refs/heads/x", "origin/x")),
    *((git(revision=name), PART.format(name)) for name in ("0123abc", "f" * 38 + "1")),
    *(
        (
            git(repository=url),
            "code.git.repository holds a user name, password or token, which everybody who may read the release would "
            "see: put it into a Secret and name that in code.git.secret",
        )
        for url in (
            "https://robot:token@git.example.com/a.git",
            "https://token@git.example.com/a.git",
            "ssh://git:password@git.example.com/a.git",
        )
    ),
    (
        {**git(), "workload.kind": "PyTorchJob"},
        "code.git is set but workload.kind is PyTorchJob, whose operator makes a pod anew for ever when its init "
        "container fails: put the code into the image, a ConfigMap or a volume, or set workload.kind to StatefulSet or "
        "Job",
    ),
    *(
        (
            git(repository=url, revision="v1.0.0"),
            f"code.git.revision is v1.0.0 but code.git.repository is {url}, and on that way anybody could hand out "
            "other code by that name: use an https or ssh URL, or a full commit hash",
        )
        for url in ("http://git/a.git", "git://git/a.git")
    ),
    (
        git(repository="http://git/a.git", secret="s"),  # noqa: S106 -- a name
        "code.git.secret is s but code.git.repository is http://git/a.git, and it would cross the network in clear or "
        "not be asked for: use an https or ssh URL, or remove the secret",
    ),
    *(
        (
            git(repository=url),
            f"code.git.secret is empty but code.git.repository is {url}: name a Secret with ssh-privatekey and "
            "known_hosts",
        )
        for url in ("git@git.example.com:a.git", "ssh://git@git.example.com/a.git")
    ),
    (
        {"code": {"claim": "a", "mountPath": "/opt/rankzero/code"}},
        "code.mountPath is /opt/rankzero/code but /opt/rankzero holds the trainer: choose a path that is neither above "
        "nor below it, e.g. /workspace",
    ),
    (
        {"code": {"claim": "a", "mountPath": "/opt/conda"}},
        "code.mountPath is /opt/conda but /opt/conda holds the Python of many images: choose a path that is neither "
        "above nor below it, e.g. /workspace",
    ),
    (
        {"code.claim": "a", "datasets": [{"name": "a", "mountPath": "/workspace/data", "claim": "a"}]},
        "datasets[0].mountPath is /workspace/data but /workspace holds code: choose a path that is neither above nor "
        "below it, e.g. /data/a",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), RELATIONS, ids=lambda case: str(case)[:60])
def test_code_that_cannot_be_what_is_meant_is_refused_with_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert refusals(minimal(changes)) == [sentence]


ACCEPTED: list[dict[str, Any]] = [
    git(revision="v1.0.0"),
    git(revision="release/2026-11"),
    git(revision="cafebabe"),
    git(revision="a" * 64),
    git(repository="file:///data/code.git"),
    git(repository="http://git.example.com/a.git"),
    git(repository="ssh://git@git.example.com:2222/a.git", secret="keys"),  # noqa: S106 -- a name
    git(repository="git@git.example.com:a.git", secret="keys"),  # noqa: S106 -- a name
    {**FILES, "launch.script": "/opt/rankzero/examples/mnist.py"},
    {"code.files": {"train.py": "#" * 1000000}},
]


@pytest.mark.parametrize("changes", ACCEPTED, ids=lambda case: str(case)[:60])
def test_code_just_inside_the_rules_is_accepted(changes: dict[str, Any]) -> None:
    assert render(minimal(changes))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"code.files": {"a/b.py": ""}}, "at '/code/files': additional properties 'a/b.py' not allowed"),
        ({"code.files": {"..": ""}}, "at '/code/files': additional properties '..' not allowed"),
        (git(repository="--upload-pack=x"), "at '/code/git/repository'"),
        (git(revision="-x"), "at '/code/git/revision'"),
        (git(revision="a..b x"), "at '/code/git/revision'"),
    ],
)
def test_misspelt_code_is_refused_by_the_schema(changes: dict[str, Any], part: str) -> None:
    (sentence,) = refusals(minimal(changes))
    assert sentence.startswith(part)


def test_the_folder_with_the_code_is_the_working_directory() -> None:
    """So that `python -m` finds its modules, and relative paths what lies beside the script."""
    assert trainer(render(minimal(FILES)))["workingDir"] == "/workspace"
    assert "workingDir" not in trainer(render(minimal({})))


def test_the_notes_mind_a_script_that_only_the_image_can_hold(tmp_path: Path) -> None:
    said = "launch.script is /workspace/train.py but code has no source: the image must hold it"
    assert said in notes(tmp_path, {"launch.script": "/workspace/train.py"})
    assert said not in notes(tmp_path, {"launch.script": "/workspace/train.py", "code.claim": "a"})
    assert said not in notes(tmp_path, {"launch.script": "/opt/team/train.py"})
