"""Volumes: what a source becomes in the pods, and which combinations are refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from rankzero import contract
from scripts.cache import REPO
from tests.chart.rendering import Manifest, environment, minimal, only, pod_spec, refusals, render, trainer

NFS = {"server": "storage.example.com", "path": "/export"}


def volumes(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The pods' volumes by name."""
    return by_name(pod_spec(manifests)["volumes"])


def mounts(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The trainer's mounts by the volume's name."""
    return by_name(trainer(manifests)["volumeMounts"])


def by_name(items: list[Manifest]) -> dict[str, Manifest]:
    """A list of the API as a mapping."""
    return {item["name"]: {key: value for key, value in item.items() if key != "name"} for item in items}


@pytest.mark.parametrize(
    ("source", "volume"),
    [
        ({"existingClaim": "team"}, {"persistentVolumeClaim": {"claimName": "team"}}),
        ({"nfs": NFS}, {"nfs": NFS}),
        ({"hostPath": {"path": "/srv"}}, {"hostPath": {"path": "/srv", "type": "Directory"}}),
        ({"hostPath": {"path": "/lustre", "shared": True}}, {"hostPath": {"path": "/lustre", "type": "Directory"}}),
    ],
)
def test_checkpoints_lie_where_the_values_say_and_no_claim_is_made(
    source: dict[str, Any], volume: dict[str, Any]
) -> None:
    manifests = render(minimal({"checkpoints": {**source, "subPath": "vision"}}))
    assert "PersistentVolumeClaim" not in {manifest["kind"] for manifest in manifests}
    assert volumes(manifests)["checkpoints"] == volume
    assert mounts(manifests)["checkpoints"] == {"mountPath": contract.STATE_ROOT, "subPath": "vision"}


def test_a_folder_that_all_nodes_share_holds_the_checkpoints_of_many() -> None:
    assert render(minimal({"nodes": 2, "checkpoints.hostPath": {"path": "/lustre", "shared": True}}))


@pytest.mark.parametrize(
    ("cache", "volume"),
    [
        ({"size": "9Gi"}, {"emptyDir": {"sizeLimit": "9Gi"}}),
        ({"hostPath": {"path": "/nvme"}}, {"hostPath": {"path": "/nvme", "type": "Directory"}}),
        (
            {"size": "9Gi", "storageClass": "local"},
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": "local",
                            "resources": {"requests": {"storage": "9Gi"}},
                        }
                    }
                }
            },
        ),
    ],
)
def test_caches_get_a_volume_where_the_image_keeps_them(cache: dict[str, Any], volume: dict[str, Any]) -> None:
    manifests = render(minimal({"cache": cache}))
    assert volumes(manifests)["cache"] == volume
    assert mounts(manifests)["cache"] == {"mountPath": contract.CACHE_PATH}
    containerfile = (REPO / "trainer/Containerfile").read_text(encoding="utf-8")
    kept = re.findall(r"\b(?:XDG_CACHE_HOME|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR)=(\S+)", containerfile)
    assert len(kept) == 3
    assert all(f"{folder}/".startswith(f"{contract.CACHE_PATH}/") for folder in kept)


@pytest.mark.parametrize(
    ("settings", "volume"),
    [
        ({}, {"emptyDir": {}}),
        ({"size": "9Gi"}, {"emptyDir": {"sizeLimit": "9Gi"}}),
        ({"hostPath": {"path": "/nvme"}}, {"hostPath": {"path": "/nvme", "type": "Directory"}}),
    ],
)
def test_checkpoints_of_the_node_have_a_volume_and_the_trainer_knows_it(
    settings: dict[str, Any], volume: dict[str, Any]
) -> None:
    changes = {"checkpoints.local": {"enabled": True, **settings}, "train": {"checkpoint": {"keep": 5}}}
    manifests = render(minimal(changes))
    assert volumes(manifests)["local-checkpoints"] == volume
    assert mounts(manifests)["local-checkpoints"] == {"mountPath": contract.LOCAL_CHECKPOINTS_PATH}
    [config] = [manifest for manifest in manifests if manifest["kind"] == "ConfigMap"]
    train = yaml.safe_load(config["data"][contract.CONFIG_FILE])["train"]
    assert train["checkpoint"] == {"keep": 5, "localPath": contract.LOCAL_CHECKPOINTS_PATH}
    assert "local-checkpoints" not in volumes(render(minimal({})))


def test_temporary_files_have_the_bound_that_is_set() -> None:
    assert "cache" not in volumes(render(minimal({})))
    assert volumes(render(minimal({})))["tmp"] == {"emptyDir": {}}
    assert volumes(render(minimal({"tmp.size": "20Gi"})))["tmp"] == {"emptyDir": {"sizeLimit": "20Gi"}}


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        # 8 ranks x ((8 workers x 4 batches + 1 in use) x 40 Mi + 256 Mi)
        ({"resources.gpus": 8, "shm.loader": {"workers": 8, "prefetch": 4, "batch": "40Mi"}}, "12608Mi"),
        ({"shm.loader": {"workers": 1, "prefetch": 1, "batch": "1k"}}, "257Mi"),
        ({"shm.loader": {"workers": 4, "prefetch": 2, "batch": "0.5Gi"}, "resources.memory": "200Gi"}, "4864Mi"),
        # What the library's loader is told counts, and its own 2 workers of 2 batches where it is told nothing.
        ({"shm.loader": {"batch": "100Mi"}}, "756Mi"),
        ({"shm.loader": {"batch": "100Mi"}, "train.dataLoader": {"workers": 0}}, "356Mi"),
        ({"shm.loader": {"batch": "10Mi"}, "train.dataLoader": {"workers": 4, "prefetch": 8}}, "586Mi"),
        ({"shm.loader": {"workers": 3, "batch": "10Mi"}, "train.dataLoader": {"workers": 3}}, "326Mi"),
    ],
)
def test_shared_memory_holds_what_the_data_loaders_hold(changes: dict[str, Any], size: str) -> None:
    """Known failure A21."""
    assert volumes(render(minimal(changes)))["shm"] == {"emptyDir": {"medium": "Memory", "sizeLimit": size}}


def test_space_on_the_nodes_disk_is_requested_as_it_is_limited() -> None:
    manifests = render(minimal({"resources.ephemeralStorage": "100Gi", "tmp.size": "50Gi", "cache.size": "50Gi"}))
    resources = trainer(manifests)["resources"]
    assert resources["limits"]["ephemeral-storage"] == resources["requests"]["ephemeral-storage"] == "100Gi"


def test_a_cache_on_a_claim_does_not_count_as_space_on_the_nodes_disk() -> None:
    cache = {"size": "50Gi", "storageClass": "local"}
    assert render(minimal({"resources.ephemeralStorage": "10Gi", "cache": cache}))


REMOTE = {"name": "a", "mountPath": "/data/a", "objectStorage": {"url": "s3://bucket/a"}}


def test_a_dataset_in_object_storage_has_a_cache_that_the_trainer_fills() -> None:
    cached = {"url": "s3://bucket/b", "cachePath": "/nvme/b"}
    bounded = {"name": "c", "mountPath": "/data/c", "objectStorage": {"url": "s3://bucket/c", "cacheSize": "1.5Ti"}}
    manifests = render(
        minimal({"datasets": [REMOTE, {"name": "b", "mountPath": "/data/b", "objectStorage": cached}, bounded]})
    )
    assert volumes(manifests)["dataset-a"] == {"emptyDir": {}}
    assert volumes(manifests)["dataset-b"] == {"hostPath": {"path": "/nvme/b", "type": "Directory"}}
    assert mounts(manifests)["dataset-a"] == {"mountPath": "/data/a", "readOnly": False}
    assert json.loads(environment(manifests)[contract.ENV_DATASETS]) == {
        "a": {"url": "s3://bucket/a", "cache": "/data/a"},
        "b": {"url": "s3://bucket/b", "cache": "/data/b"},
        "c": {"url": "s3://bucket/c", "cache": "/data/c", "size": 3 * 2**39},
    }


def test_scripts_find_object_storage_by_the_names_that_its_clients_read() -> None:
    settings = {
        "url": "s3://bucket/team",
        "endpoint": "https://s3.example.com",
        "region": "eu-central-1",
        "secret": "123",
    }
    manifests = render(minimal({"objectStorage": settings}))
    entries = by_name(trainer(manifests)["env"])
    assert {name: entry["value"] for name, entry in entries.items() if "value" in entry and "RANKZERO" not in name} == {
        "AWS_ENDPOINT_URL": "https://s3.example.com",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }
    assert entries[contract.ENV_OBJECT_STORAGE_URL]["value"] == "s3://bucket/team"
    references = {
        name: entry["valueFrom"]["secretKeyRef"]
        for name, entry in entries.items()
        if "secretKeyRef" in entry.get("valueFrom", {})
    }
    # A key that is missing keeps the pod from starting, but for the one that only temporary credentials have.
    assert references == {
        "AWS_ACCESS_KEY_ID": {"name": "123", "key": "AWS_ACCESS_KEY_ID"},
        "AWS_SECRET_ACCESS_KEY": {"name": "123", "key": "AWS_SECRET_ACCESS_KEY"},
        "AWS_SESSION_TOKEN": {"name": "123", "key": "AWS_SESSION_TOKEN", "optional": True},
    }


RELATIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"checkpoints": {"existingClaim": "a", "nfs": NFS}},
        "checkpoints has existingClaim and nfs, and state lies in one place: keep one of existingClaim, nfs and "
        "hostPath",
    ),
    (
        {"nodes": 2, "checkpoints.hostPath": {"path": "/srv"}},
        "checkpoints.hostPath is /srv but nodes is 2, and each node would have a folder of its own: set "
        "checkpoints.hostPath.shared to true where it is one file system on all of them, or use a claim or nfs",
    ),
    (
        {"checkpoints": {"storageClass": "fast", "nfs": NFS}},
        "checkpoints.storageClass is fast but checkpoints.nfs is set, so no claim is made: remove one of them",
    ),
    (
        {"cache.storageClass": "local"},
        "cache.storageClass is local but cache.size is empty: set cache.size to the size of each pod's claim",
    ),
    (
        {"cache": {"size": "1Gi", "hostPath": {"path": "/nvme"}}},
        "cache.hostPath is /nvme beside cache.size or cache.storageClass, and a folder of the nodes has neither: "
        "remove them or cache.hostPath",
    ),
    (
        {"checkpoints.local": {"size": "1Gi"}},
        "checkpoints.local has size, storageClass or hostPath but enabled is false: set checkpoints.local.enabled to "
        "true or remove them",
    ),
    (
        {"checkpoints.local": {"enabled": True, "storageClass": "nvme"}},
        "checkpoints.local.storageClass is nvme but checkpoints.local.size is empty: set checkpoints.local.size to the "
        "size of each pod's claim",
    ),
    (
        {"checkpoints.local": {"enabled": True, "size": "1Gi", "hostPath": {"path": "/nvme"}}},
        "checkpoints.local.hostPath is /nvme beside checkpoints.local.size or storageClass, and a folder of the nodes "
        "has neither: remove them or checkpoints.local.hostPath",
    ),
    (
        {"checkpoints.local": {"enabled": True}, "train.checkpoint": {"localPath": "/nvme"}},
        "train.checkpoint.localPath is /nvme but checkpoints.local is enabled, which sets it: remove one of them",
    ),
    (
        {"shm": {"size": "1Gi", "loader": {"workers": 1, "prefetch": 1, "batch": "1Mi"}}},
        "shm.size is 1Gi and shm.loader is set, which makes the size: remove one of them",
    ),
    (
        {
            "resources.ephemeralStorage": "10Gi",
            "tmp.size": "4Gi",
            "cache.size": "4Gi",
            "checkpoints.local": {"enabled": True, "size": "1Gi"},
            "datasets": [{**REMOTE, "objectStorage": {"url": "s3://b", "cacheSize": "3Gi"}}],
        },
        "resources.ephemeralStorage is 10Gi but tmp.size, cache.size, checkpoints.local.size and the caches of "
        "datasets add up to 12288Mi, so a pod would be evicted within its own bounds: raise it or lower them",
    ),
    (
        {"shm.loader": {"workers": 1}},
        "shm.loader.batch is missing, so nothing can be added up: set it to the memory of one batch, e.g. 40Mi",
    ),
    *(
        (
            {"shm.loader": {key: 8, "batch": "1Mi"}, "train.dataLoader": {key: 4}},
            f"shm.loader.{key} is 8 but train.dataLoader.{key} is 4, by which the library reads: remove "
            f"shm.loader.{key}",
        )
        for key in ("workers", "prefetch")
    ),
    (
        {"shm.loader": {"workers": 8, "prefetch": 2, "batch": "1Gi"}, "resources.memory": "16Gi"},
        "shm.loader adds up to 17664Mi but resources.memory is 16Gi, which counts /dev/shm too: lower shm.loader or "
        "raise resources.memory",
    ),
    (
        {"datasets": [{**REMOTE, "claim": "a"}]},
        "datasets[0] (a) has claim and objectStorage as its source: give exactly one of claim, nfs, hostPath and "
        "objectStorage",
    ),
    (
        {"datasets": [{**REMOTE, "readOnly": True}]},
        "datasets[0].readOnly is true but the trainer fills the cache of s3://bucket/a at its mountPath: remove "
        "readOnly",
    ),
    (
        {"datasets": [{**REMOTE, "objectStorage": {"url": "s3://b", "cacheSize": "1Gi", "cachePath": "/nvme"}}]},
        "datasets[0].objectStorage.cacheSize is 1Gi but cachePath is /nvme, and a folder of the nodes has no bound: "
        "remove one of them",
    ),
    *(
        (
            {key: url},
            f"{key} holds a user name, password or key, which everybody who may read the release would see: put them "
            "into a Secret and name that in objectStorage.secret",
        )
        for key, url in (
            ("objectStorage.endpoint", "https://me:word@s3.example.com"),
            ("objectStorage.url", "s3://AKIA:word@bucket/team"),
            ("train.checkpoint.mirror", "s3://AKIA:word@bucket/team"),
            ("train.resume.from", "az://container/team?sv=1&sig=word"),
        )
    ),
    (
        {"train.checkpoint.mirror": "/checkpoints"},
        "train.checkpoint.mirror is /checkpoints, where no copies can be: set it to a bucket and a folder in it, e.g. "
        "s3://bucket/checkpoints",
    ),
    (
        {"objectStorage.region": "eu-central-1", "network.env": {"AWS_REGION": "us-east-1"}},
        "network.env.AWS_REGION is set, as objectStorage sets it too: remove one of them",
    ),
    (
        {"objectStorage.secret": "s3", "secretEnv": {"AWS_ACCESS_KEY_ID": {"secret": "a", "key": "b"}}},
        "secretEnv.AWS_ACCESS_KEY_ID is set, as objectStorage sets it too: remove one of them",
    ),
]


def test_copies_of_checkpoints_have_the_secret_without_any_dataset() -> None:
    changes = {"train.checkpoint.mirror": "s3://bucket/checkpoints", "objectStorage.secret": "s3"}
    manifests = render(minimal(changes))
    assert environment(manifests).keys() >= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    settings = yaml.safe_load(only(manifests, "ConfigMap")["data"][contract.CONFIG_FILE])
    assert settings["train"]["checkpoint"]["mirror"] == "s3://bucket/checkpoints"


@pytest.mark.parametrize(("changes", "sentence"), RELATIONS, ids=lambda case: str(case)[:60])
def test_volumes_that_contradict_each_other_are_refused_with_one_sentence(
    changes: dict[str, Any], sentence: str
) -> None:
    assert refusals(minimal(changes)) == [sentence]


SCHEMA: list[tuple[dict[str, Any], str]] = [
    ({"checkpoints.nfs": {"server": "a"}}, "properties 'path' required, if 'server' exists"),
    ({"checkpoints.subPath": "../other"}, "at '/checkpoints/subPath'"),
    ({"checkpoints.subPath": "/vision"}, "at '/checkpoints/subPath'"),
    ({"cache.hostPath": {"path": "relative"}}, "at '/cache/hostPath/path'"),
    ({"shm.loader": {"workers": 0}}, "at '/shm/loader/workers': minimum: got 0, want 1"),
    ({"datasets": [{**REMOTE, "objectStorage": {}}]}, "missing property 'url'"),
    ({"objectStorage.endpoint": "s3.example.com"}, "at '/objectStorage/endpoint'"),
]


@pytest.mark.parametrize(("changes", "part"), SCHEMA, ids=lambda case: str(case)[:60])
def test_a_misspelt_volume_is_refused_by_the_schema(changes: dict[str, Any], part: str) -> None:
    (sentence,) = refusals(minimal(changes))
    assert part in sentence


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({"nodes": 1}, "ReadWriteOnce"),
        ({"nodes": 2}, "ReadWriteMany"),
        ({"nodes": 1, "checkpoints.accessMode": "ReadWriteMany"}, "ReadWriteMany"),
    ],
)
def test_a_claim_for_one_node_is_one_that_every_storage_class_can_make(values: dict[str, Any], mode: str) -> None:
    claim = only(render(minimal(values)), "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == [mode]
