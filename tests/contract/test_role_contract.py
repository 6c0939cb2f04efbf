"""The names that the roles write on nodes are those of the contract."""

from __future__ import annotations

from rankzero import contract
from roles.node_profile.filter_plugins import node_profile
from scripts.cache import REPO
from tests.roles.templating import load

PROFILE_NAMES = load(REPO / "roles/node_profile/vars/main/names.yml")


def test_node_profile_writes_the_profile_labels_of_the_contract() -> None:
    assert PROFILE_NAMES["__node_profile_label_profile"] == contract.LABEL_NODE_PROFILE
    assert PROFILE_NAMES["__node_profile_label_hash"] == contract.LABEL_NODE_PROFILE_HASH
    assert len(node_profile.profile_hash({})) == 12


def test_the_drain_recognises_the_pods_of_an_experiment_as_the_chart_labels_them() -> None:
    names = load(REPO / "roles/drain/vars/main/names.yml")

    assert names["__drain_label_name"] == contract.LABEL_NAME
    assert names["__drain_label_instance"] == contract.LABEL_INSTANCE
    assert names["__drain_app_name"] == contract.APP_NAME
