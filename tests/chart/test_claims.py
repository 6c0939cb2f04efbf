"""Claims that are there already are asked before anything is made; Helm looks them up in a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.chart import fake_cluster
from tests.chart.fake_cluster import claim
from tests.chart.rendering import minimal, refusals, render

ONE, MANY, READ_ONLY = "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"
OWN = "mnist-checkpoints"
WAY = (
    "copy the checkpoints to a claim of your own and name it in checkpoints.existingClaim, or give them up with "
    f"`kubectl delete pvc {OWN}`"
)
IN_CLUSTER = ("--dry-run=server", "--disable-openapi-validation")


def asked(kubeconfig: Path) -> tuple[str, ...]:
    return (*IN_CLUSTER, "--kubeconfig", str(kubeconfig))


@pytest.mark.parametrize(
    ("changes", "claims", "sentence"),
    [
        (
            {"nodes": 2},
            {OWN: claim(ONE)},
            f"the claim {OWN} is there from an earlier install and stays {ONE}, but nodes is 2 and wants {MANY}: {WAY}",
        ),
        (
            {"nodes": 1},
            {OWN: claim(MANY)},
            f"the claim {OWN} is there from an earlier install and ReadWriteMany, which it stays: set "
            "checkpoints.accessMode to that",
        ),
        (
            {"checkpoints.storageClass": "slow"},
            {OWN: claim(ONE)},
            f"checkpoints.storageClass is slow but the claim {OWN} is there from an earlier install and stays with "
            f"fast: leave the class out; or {WAY}",
        ),
        (
            {"checkpoints.size": "9Gi"},
            {OWN: claim(ONE)},
            f"checkpoints.size is 9Gi but the claim {OWN} is there from an earlier install with 10Gi, and a claim only "
            "grows: set checkpoints.size to at least that",
        ),
        (
            {"nodes": 2, "checkpoints.existingClaim": "mine"},
            {"mine": claim(ONE)},
            f"checkpoints.existingClaim is mine, which is {ONE}, but nodes is 2 and one machine alone can mount it so: "
            f"name a claim that is {MANY}, or set nodes to 1",
        ),
        (
            {"nodes": 2, "checkpoints.existingClaim": "mine"},
            {"mine": claim(READ_ONLY)},
            f"checkpoints.existingClaim is mine, which is {READ_ONLY}, but nodes is 2 and one machine alone can mount "
            f"it so: name a claim that is {MANY}, or set nodes to 1",
        ),
        (
            {"nodes": 2, "datasets": [{"name": "d", "mountPath": "/data/d", "claim": "data"}]},
            {"data": claim(ONE)},
            f"datasets[0].claim is data, which is {ONE}, but nodes is 2 and one machine alone can mount it so: name a "
            f"claim that is {MANY}, or set nodes to 1",
        ),
        (
            {"nodes": 2, "code.claim": "code", "code.readOnly": False},
            {"code": claim(READ_ONLY)},
            f"code.claim is code, which is {READ_ONLY}, but nodes is 2 and one machine alone can mount it so: name a "
            f"claim that is {MANY}, or set nodes to 1",
        ),
    ],
)
def test_a_claim_that_does_not_fit_is_refused_before_anything_is_made(
    changes: Mapping[str, Any], claims: Mapping[str, Any], sentence: str, tmp_path: Path
) -> None:
    """Helm makes all other objects before the API refuses this one, and the pods of a failed install train."""
    with fake_cluster.serve(tmp_path / "config", claims):
        assert refusals(minimal(changes), extra=asked(tmp_path / "config")) == [sentence]


@pytest.mark.parametrize(
    ("changes", "claims"),
    [
        ({}, {}),
        ({}, {OWN: claim(ONE)}),
        ({}, {OWN: claim(ONE, size="10737418240")}),
        ({"checkpoints.size": "20Gi", "checkpoints.storageClass": "fast"}, {OWN: claim(ONE)}),
        ({"checkpoints.accessMode": MANY}, {OWN: claim(MANY)}),
        ({"nodes": 2}, {OWN: claim(MANY)}),
        ({"nodes": 2, "checkpoints.existingClaim": "mine"}, {}),
        ({"nodes": 2, "checkpoints.existingClaim": "mine"}, {"mine": claim(MANY), OWN: claim(ONE)}),
        ({"checkpoints.existingClaim": "mine"}, {"mine": claim(ONE)}),
        (
            {"nodes": 2, "datasets": [{"name": "d", "mountPath": "/data/d", "claim": "data"}]},
            {"data": claim(READ_ONLY)},
        ),
        ({"nodes": 2, "code.claim": "code"}, {"code": claim(READ_ONLY)}),
    ],
)
def test_a_claim_that_fits_or_is_not_there_yet_changes_nothing(
    changes: Mapping[str, Any], claims: Mapping[str, Any], tmp_path: Path
) -> None:
    with fake_cluster.serve(tmp_path / "config", claims):
        assert render(minimal(changes), extra=asked(tmp_path / "config")) == render(minimal(changes))


def test_an_upgrade_leaves_the_release_s_own_claim_to_the_api_and_to_rankzero_diff(tmp_path: Path) -> None:
    with fake_cluster.serve(tmp_path / "config", {OWN: claim(ONE)}):
        assert render(minimal({"nodes": 2}), extra=(*asked(tmp_path / "config"), "--is-upgrade"))
