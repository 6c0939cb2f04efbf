"""The names that the roles write on nodes are those of the contract."""

from __future__ import annotations

from rankzero import contract
from roles.node_profile.filter_plugins import node_profile
from scripts.cache import REPO
from tests.roles.templating import load

PROFILE_NAMES = load(REPO / "roles/node_profile/vars/main/names.yml")


def test_node_profile_writes_the_labels_and_annotations_of_the_contract() -> None:
    ours = {name.removeprefix("__node_profile_"): value for name, value in PROFILE_NAMES.items()}

    assert {name: value for name, value in ours.items() if name.startswith(("label_", "annotation_"))} == {
        "label_profile": contract.LABEL_NODE_PROFILE,
        "label_hash": contract.LABEL_NODE_PROFILE_HASH,
        "label_gpu_count": contract.LABEL_GPU_COUNT,
        "label_driver_branch": contract.LABEL_DRIVER_BRANCH,
        "label_cpu_manager": contract.LABEL_CPU_MANAGER,
        "annotation_interfaces": contract.ANNOTATION_INTERFACES,
        "annotation_hcas": contract.ANNOTATION_HCAS,
        "annotation_rails": contract.ANNOTATION_RAILS,
    }
    assert ours["file"] == contract.NODE_PROFILE_FILE
    assert len(node_profile.profile_hash({})) == 12


def test_the_drain_recognises_the_pods_of_an_experiment_as_the_chart_labels_them() -> None:
    names = load(REPO / "roles/drain/vars/main/names.yml")

    assert names["__drain_label_name"] == contract.LABEL_NAME
    assert names["__drain_label_instance"] == contract.LABEL_INSTANCE
    assert names["__drain_app_name"] == contract.APP_NAME


def test_node_profile_knows_the_mark_of_a_node_that_drain_has_cordoned() -> None:
    drain = load(REPO / "roles/drain/vars/main/names.yml")

    assert PROFILE_NAMES["__node_profile_cordoned_mark"] == drain["__drain_annotation"]
