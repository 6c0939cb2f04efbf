"""What the objects of a release are, one subject a test."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from rankzero import contract
from scripts.cache import REPO
from scripts.generate import files, helm
from tests.chart import kubernetes_types
from tests.chart.rendering import Manifest, documents, environment, minimal, only, pod_spec, render, run_config, trainer


def test_every_object_is_in_the_releases_namespace() -> None:
    assert {manifest["metadata"]["namespace"] for manifest in render(minimal({}))} == {helm.NAMESPACE}


def test_service_and_statefulset_select_the_pods_that_the_template_makes() -> None:
    manifests = render(minimal({"podLabels": {"team": "vision"}}))
    labels = only(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selector = only(manifests, "StatefulSet")["spec"]["selector"]["matchLabels"]
    spread = pod_spec(manifests)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    assert selector == only(manifests, "Service")["spec"]["selector"] == spread
    assert selector.items() <= labels.items()
    assert labels["team"] == "vision"


def test_rank_0_is_found_before_it_is_ready() -> None:
    """Known failure A12, and the reason why every pod waits for ever for rank 0."""
    manifests = render(minimal({"nodes": 2}))
    service = only(manifests, "Service")["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert only(manifests, "StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"
    assert environment(manifests)[contract.ENV_RANK0_HOST] == "mnist-0.mnist"
    assert only(manifests, "StatefulSet")["spec"]["serviceName"] == only(manifests, "Service")["metadata"]["name"]


def test_an_upgrade_touches_no_field_that_cannot_change() -> None:
    """Known failure A13: selectors, the service's name and claims stay the same when everything else changes."""
    before = render(minimal({"nodes": 2}))
    after = render(
        minimal(
            {"image.tag": "0.2.0", "nodes": 3, "train.epochs": 5, "shm.size": "2Gi", "podLabels": {"team": "vision"}}
        ),
    )
    mutable = {"replicas", "template", "updateStrategy"}
    for kind, spec in (("StatefulSet", "spec"), ("PersistentVolumeClaim", "spec"), ("RoleBinding", "roleRef")):
        old, new = only(before, kind)[spec], only(after, kind)[spec]
        assert {key: old[key] for key in old if key not in mutable} == {k: new[k] for k in new if k not in mutable}

    def names(manifests: list[Manifest]) -> list[str]:
        return [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] != "ConfigMap"]

    assert names(before) == names(after)


def test_no_selector_or_pod_label_carries_the_charts_version() -> None:
    template = only(render(minimal({})), "StatefulSet")["spec"]["template"]
    own = {label for label in template["metadata"]["labels"] if "istio.io" not in label}
    assert own == {contract.LABEL_NAME, contract.LABEL_INSTANCE}


def test_a_changed_setting_replaces_the_whole_group() -> None:
    def template(epochs: int) -> Manifest:
        found: Manifest = only(render(minimal({"train.epochs": epochs})), "StatefulSet")["spec"]["template"]
        return found

    assert template(1) != template(2)
    strategy = only(render(minimal({})), "StatefulSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}


def test_running_pods_keep_the_settings_they_were_started_with() -> None:
    """A ConfigMap that changed under its name would reach them at their next attempt, each at another time."""

    def settings(changes: dict[str, object]) -> tuple[str, str, str]:
        manifests = render(minimal(changes))
        config = only(manifests, "ConfigMap")
        assert config["immutable"] is True
        volumes = {volume["name"]: volume for volume in pod_spec(manifests)["volumes"]}
        return (
            config["metadata"]["name"],
            volumes["config"]["configMap"]["name"],
            environment(manifests)[contract.ENV_CONFIG_HASH],
        )

    name, mounted, hashed = settings({})
    assert name == mounted == f"mnist-{hashed}"
    assert settings({"image.tag": "0.2.0"}) == (name, mounted, hashed)
    others: list[dict[str, object]] = [{"train.epochs": 2}, {"launch.args": ["--fast"]}, {"nodes": 2}]
    for changes in others:
        assert not set(settings(changes)) & {name, hashed}


ODD = ["on", "null", "y", "e1"]
"""Release names that YAML takes for something else where they stand without quotes."""


@pytest.mark.parametrize("release", ODD)
def test_texts_that_yaml_reads_as_something_else_stay_texts(release: str) -> None:
    odd = {
        "image": {"repository": "1", "tag": "1", "pullSecrets": ["1.5"]},
        "run.id": "1e3",
        "checkpoints.storageClass": "true",
        "serviceAccount.name": "off",
        "scheduling.priorityClassName": "no",
        "network": {"interface": "0x10", "ncclDebug": "INFO", "env": {"y": "1"}},
        "shm.size": "1Gi",
        "datasets": [
            {"name": "a", "mountPath": "/1", "claim": "123"},
            {"name": "b", "mountPath": "/2", "nfs": {"server": "10", "path": "/exports #1: all"}},
        ],
    }
    manifests = render(minimal(odd), release=release, extra=["--namespace", "2024"])
    assert [problem for manifest in manifests for problem in kubernetes_types.problems(manifest)] == []
    assert {manifest["metadata"]["namespace"] for manifest in manifests} == {"2024"}
    assert only(manifests, "Role")["rules"][0]["resourceNames"] == [release]
    assert only(manifests, "PersistentVolumeClaim")["spec"]["storageClassName"] == "true"
    assert only(manifests, "RoleBinding")["subjects"][0]["name"] == "off"
    pod = pod_spec(manifests)
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("off", "no")
    assert pod["imagePullSecrets"] == [{"name": "1.5"}]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["dataset-a"]["persistentVolumeClaim"] == {"claimName": "123"}
    assert volumes["dataset-b"]["nfs"] == {"server": "10", "path": "/exports #1: all"}
    assert trainer(manifests)["image"] == "1:1"
    found = environment(manifests)
    assert (found[contract.ENV_RUN_NAME], found[contract.ENV_RUN_ID]) == (release, "1e3")
    assert (found["GLOO_SOCKET_IFNAME"], found["y"]) == ("0x10", "1")


def test_a_run_may_be_numbered() -> None:
    """`--set run.id=2` is a number, and so is `id: 20261130` in a file, where Helm reads it as a float."""
    for manifests in (render(minimal({}), extra=["--set", "run.id=20261130"]), render(minimal({"run.id": 20261130}))):
        assert environment(manifests)[contract.ENV_RUN_ID] == "20261130"
    assert environment(render(minimal({}), extra=["--set", "run.id=0"]))[contract.ENV_RUN_ID] == "0"


def test_an_existing_claim_with_a_number_for_a_name_is_a_text() -> None:
    manifests = render(minimal({"checkpoints.existingClaim": "123"}))
    volumes = {volume["name"]: volume for volume in pod_spec(manifests)["volumes"]}
    assert volumes["checkpoints"]["persistentVolumeClaim"]["claimName"] == "123"


def test_the_chart_can_be_a_dependency_of_another(tmp_path: Path) -> None:
    """Helm hands a dependency the key `global`, asked or not."""
    shutil.copytree(files.CHART, tmp_path / "charts" / "rankzero")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: umbrella\nversion: 1.0.0\n", encoding="utf-8")
    values = {"global": {"team": "vision"}, "rankzero": minimal({"nodes": 3})}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    manifests = documents(helm.helm("template", "mnist", tmp_path))
    assert only(manifests, "StatefulSet")["spec"]["replicas"] == 3


def test_the_claim_outlives_the_release_unless_it_is_disposable() -> None:
    """Known failure A14."""
    kept = only(render(minimal({})), "PersistentVolumeClaim")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    disposable = only(render(minimal({"checkpoints.keep": False})), "PersistentVolumeClaim")
    assert "annotations" not in disposable["metadata"]


def test_an_existing_claim_is_used_and_none_is_made() -> None:
    manifests = render(minimal({"checkpoints.existingClaim": "team"}))
    assert "PersistentVolumeClaim" not in {manifest["kind"] for manifest in manifests}
    volumes = {volume["name"]: volume for volume in pod_spec(manifests)["volumes"]}
    assert volumes["checkpoints"]["persistentVolumeClaim"]["claimName"] == "team"


def test_the_role_allows_to_scale_the_own_statefulset_and_to_write_events_and_nothing_else() -> None:
    manifests = render(minimal({}))
    assert only(manifests, "Role")["rules"] == [
        {
            "apiGroups": ["apps"],
            "resources": ["statefulsets/scale"],
            "resourceNames": ["mnist"],
            "verbs": ["get", "patch"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    (subject,) = only(manifests, "RoleBinding")["subjects"]
    assert (
        subject["name"]
        == pod_spec(manifests)["serviceAccountName"]
        == only(manifests, "ServiceAccount")["metadata"]["name"]
    )
    assert only(manifests, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod_spec(manifests)["automountServiceAccountToken"] is True


def test_without_the_role_the_pods_hold_no_token() -> None:
    manifests = render(minimal({"rbac.create": False}))
    assert not {"Role", "RoleBinding"} & {manifest["kind"] for manifest in manifests}
    assert pod_spec(manifests)["automountServiceAccountToken"] is False
    assert only(manifests, "ServiceAccount")["automountServiceAccountToken"] is False


def test_an_administrators_role_takes_the_place_of_the_charts() -> None:
    """Scaling to 0 needs the token, whoever gave the account its rights."""
    manifests = render(
        minimal({"rbac.create": False, "serviceAccount": {"create": False, "name": "trainer", "automount": True}})
    )
    assert not {"Role", "RoleBinding", "ServiceAccount"} & {manifest["kind"] for manifest in manifests}
    assert pod_spec(manifests)["serviceAccountName"] == "trainer"
    assert pod_spec(manifests)["automountServiceAccountToken"] is True


@pytest.mark.parametrize(("automount", "mounted"), [("auto", True), (True, True), (False, False)])
def test_the_token_can_be_kept_out_of_the_pods(automount: object, mounted: bool) -> None:
    spec = pod_spec(render(minimal({"serviceAccount.automount": automount})))
    assert spec["automountServiceAccountToken"] is mounted


def test_evictions_take_one_pod_at_a_time_and_broken_ones_always() -> None:
    manifests = render(minimal({"nodes": 4}))
    assert only(manifests, "PodDisruptionBudget")["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": only(manifests, "StatefulSet")["spec"]["selector"],
    }


def test_the_budget_of_evictions_can_be_set_and_left_out() -> None:
    none_at_all = only(render(minimal({"podDisruptionBudget.maxUnavailable": 0})), "PodDisruptionBudget")
    assert none_at_all["spec"]["maxUnavailable"] == 0
    manifests = render(minimal({"podDisruptionBudget.enabled": False}))
    assert "PodDisruptionBudget" not in {manifest["kind"] for manifest in manifests}


@pytest.mark.parametrize(("name", "account"), [("", "default"), ("trainer", "trainer")])
def test_without_an_account_of_its_own_the_release_uses_the_given_one(name: str, account: str) -> None:
    # The namespace's own account, which pods of others have too, gets no rights.
    manifests = render(minimal({"serviceAccount": {"create": False, "name": name}, "rbac.create": bool(name)}))
    assert "ServiceAccount" not in {manifest["kind"] for manifest in manifests}
    assert pod_spec(manifests)["serviceAccountName"] == account
    bindings = [manifest["subjects"] for manifest in manifests if manifest["kind"] == "RoleBinding"]
    assert [subject["name"] for subjects in bindings for subject in subjects] == [account] * bool(name)


def test_gpus_cpus_and_memory_are_requested_as_they_are_limited() -> None:
    manifests = render(minimal({"resources": {"gpus": 8, "cpu": 96, "memory": "800Gi"}}))
    wanted = {"nvidia.com/gpu": 8, "cpu": "96", "memory": "800Gi"}
    assert trainer(manifests)["resources"] == {"limits": wanted, "requests": wanted}


def test_a_bursting_pod_has_a_cpu_request_and_no_cpu_limit() -> None:
    manifests = render(minimal({"resources": {"gpus": 0, "cpu": "100m", "cpuBurst": True, "memory": "2Gi"}}))
    assert trainer(manifests)["resources"] == {
        "limits": {"memory": "2Gi"},
        "requests": {"cpu": "100m", "memory": "2Gi"},
    }


def test_a_pod_that_asks_for_nothing_has_no_resources() -> None:
    assert "resources" not in trainer(render(minimal({"resources.gpus": 0})))


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"resources.gpus": 8}, "8Gi"),
        ({"resources.gpus": 0}, "1Gi"),
        ({"resources.memory": "3Gi"}, "1536Mi"),
        ({"resources.memory": "1.5Gi"}, "768Mi"),
        ({"resources.memory": "800G"}, "381469Mi"),
        ({"resources.memory": "500k"}, "1Mi"),
        ({"resources.memory": "800Gi", "shm.size": "16Gi"}, "16Gi"),
    ],
)
def test_shared_memory_is_bounded_by_the_value_or_by_what_the_pod_has(changes: dict[str, object], size: str) -> None:
    """Known failure A21."""
    volumes = {volume["name"]: volume for volume in pod_spec(render(minimal(changes)))["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": size}
    mounts = {mount["name"]: mount["mountPath"] for mount in trainer(render(minimal(changes)))["volumeMounts"]}
    assert mounts["shm"] == "/dev/shm"  # noqa: S108


@pytest.mark.parametrize(
    ("changes", "processes"),
    [
        ({"resources.gpus": 0}, 1),
        ({"resources.gpus": 8}, 8),
        ({"resources.gpus": 8, "procsPerNode": 4}, 4),
        ({"resources.gpus": 0, "procsPerNode": 2}, 2),
    ],
)
def test_there_is_one_rank_a_gpu_unless_said_otherwise(
    changes: dict[str, object], processes: int, tmp_path: Path
) -> None:
    assert run_config(render(minimal(changes)), tmp_path).launch.procs_per_node == processes


def test_the_pod_is_restricted() -> None:
    manifests = render(minimal({}))
    pod, container = pod_spec(manifests)["securityContext"], trainer(manifests)["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probes_ask_the_launcher_over_http_and_start_no_process() -> None:
    container = trainer(render(minimal({})))
    probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
    assert {name: probe["httpGet"] for name, probe in probes.items()} == {
        "startupProbe": {"path": "/healthz", "port": "status"},
        "readinessProbe": {"path": "/readyz", "port": "status"},
        "livenessProbe": {"path": "/healthz", "port": "status"},
    }


def test_two_pods_never_share_a_node() -> None:
    (constraint,) = pod_spec(render(minimal({"nodes": 3})))["topologySpreadConstraints"]
    assert (constraint["maxSkew"], constraint["minDomains"], constraint["whenUnsatisfiable"]) == (1, 3, "DoNotSchedule")
    assert constraint["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize("profile", ["off", False, "preferred", "required"])
def test_the_node_profile_is_a_rule_of_its_own_strength(profile: str | bool) -> None:
    """`off` without quotes is false in YAML."""
    node = pod_spec(render(minimal({"scheduling.nodeProfile": profile}))).get("affinity", {}).get("nodeAffinity", {})
    rule = [{"key": contract.LABEL_NODE_PROFILE, "operator": "Exists"}]
    assert (
        node
        == {
            "off": {},
            False: {},
            "preferred": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": {"matchExpressions": rule}}
                ]
            },
            "required": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": rule}]}
            },
        }[profile]
    )


def test_nccl_and_gloo_get_the_same_interface_or_none() -> None:
    """Known failure A18."""
    assert not [name for name in environment(render(minimal({}))) if name.startswith(("NCCL_", "GLOO_"))]
    network = environment(render(minimal({"network.interface": "eth1", "network.ncclDebug": "INFO"})))
    assert {name: value for name, value in network.items() if name.startswith(("NCCL_", "GLOO_"))} == {
        "NCCL_SOCKET_IFNAME": "=eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "NCCL_DEBUG": "INFO",
    }


def test_the_notes_name_the_claim_and_what_uninstall_does_with_it(tmp_path: Path) -> None:
    kept = notes(tmp_path, {})
    assert "removes the pods and keeps the claim" in kept
    assert "claim mnist-checkpoints, folder mnist/main" in kept
    assert "removes the pods AND the claim with all checkpoints" in notes(tmp_path, {"checkpoints.keep": False})
    assert "claim team is yours and stays" in notes(tmp_path, {"checkpoints.existingClaim": "team"})


def test_the_notes_say_who_frees_the_gpus(tmp_path: Path) -> None:
    assert "the StatefulSet is scaled to 0" in notes(tmp_path, {})
    assert "Your Role" not in notes(tmp_path, {})
    theirs = notes(tmp_path, {"rbac.create": False, "serviceAccount": {"name": "trainer", "automount": True}})
    assert "the StatefulSet is scaled to 0" in theirs
    assert "Your Role must allow that to account trainer" in theirs
    by_hand = notes(tmp_path, {"rbac.create": False})
    assert "is scaled to 0" not in by_hand
    assert f"kubectl -n {helm.NAMESPACE} scale statefulset mnist --replicas=0 frees them" in by_hand


@pytest.mark.parametrize(
    ("kind", "rank0", "change"),
    [
        ("StatefulSet", "mnist-0", "helm upgrade restarts the pods"),
        ("Job", "-l app.kubernetes.io/instance=mnist,batch.kubernetes.io/job-completion-index=0", "does not change"),
        ("Pod", "mnist", "a Pod does not change while it runs"),
    ],
)
def test_the_notes_say_how_to_follow_and_to_change_each_kind(
    kind: str, rank0: str, change: str, tmp_path: Path
) -> None:
    said = notes(tmp_path, {"workload.kind": kind})
    assert f"rankzero status mnist -n {helm.NAMESPACE}" in said
    assert f"kubectl -n {helm.NAMESPACE} logs -f {rank0}\n" in said
    assert change in said
    assert ("scaled to 0" in said) == (kind == "StatefulSet")


def test_the_notes_name_the_ports_on_the_network_of_the_nodes(tmp_path: Path) -> None:
    manifests = render(minimal({"network.hostNetwork": True}))
    rendezvous, status = (port["hostPort"] for port in trainer(manifests)["ports"])
    said = notes(tmp_path, {"network.hostNetwork": True})
    assert f"ports {rendezvous} (rendezvous, rank 0) and {status} (status)" in said
    assert "(rendezvous" not in notes(tmp_path, {})


def notes(folder: Path, changes: dict[str, object]) -> str:
    """What Helm says after an install."""
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(minimal(changes)), encoding="utf-8")
    text = helm.helm(
        "install", "mnist", files.CHART, "--dry-run=client", "--namespace", helm.NAMESPACE, "--values", values
    )
    return text.partition("\nNOTES:\n")[2]


def test_the_mnist_experiment_needs_only_an_image(tmp_path: Path) -> None:
    values = yaml.safe_load((REPO / "experiments" / "mnist.yaml").read_text(encoding="utf-8"))
    manifests = render(values, extra=["--set", "image.repository=example.com/trainer", "--set", "image.tag=0.1.0"])
    loaded = run_config(manifests, tmp_path)
    assert loaded.world_size == 4
    assert loaded.train.backend == "gloo"
    assert "nvidia.com/gpu" not in re.sub(r"tolerations:.*", "", str(trainer(manifests)))
