"""HAMi mode: what its scheduler and webhook were seen to do with training pods, and what is refused because of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import Manifest, environment, minimal, only, pod_spec, refusals, render, trainer

PART: dict[str, Any] = {"enabled": True, "memory": "12k", "cardPolicy": "mutex"}
WHOLE: dict[str, Any] = {"enabled": True}


def release(hami: dict[str, Any], **changes: Any) -> list[Manifest]:
    """A release of two cards a pod."""
    return render(minimal({"resources.gpus": 2, "hami": hami, **changes}))


def cards(manifests: list[Manifest]) -> dict[str, Any]:
    """What a pod asks for of NVIDIA's resources, in limits as in requests."""
    resources = trainer(manifests)["resources"]
    assert resources["limits"] == resources["requests"]
    return {key.removeprefix("nvidia.com/"): value for key, value in resources["limits"].items()}


def pod_annotations(manifests: list[Manifest]) -> dict[str, str]:
    """Those of the pods that HAMi reads."""
    found: dict[str, str] = only(manifests, "StatefulSet")["spec"]["template"]["metadata"].get("annotations", {})
    return {name: value for name, value in found.items() if name.startswith(("hami.io/", "nvidia.com/"))}


@pytest.mark.parametrize("memory", [12000, "12000", "12k"])
def test_an_amount_of_memory_reaches_hami_as_whole_mib_beside_the_number_of_cards(memory: object) -> None:
    """`12k` is how the K3s guide writes it; memory without a number of cards is started unaccounted."""
    assert cards(release({**PART, "memory": memory})) == {"gpu": 2, "gpumem": 12000}


def test_memory_and_compute_can_be_parts_of_a_card() -> None:
    part = {"enabled": True, "memoryPercent": 50, "cores": 30, "cardPolicy": "spread"}
    assert cards(release(part)) == {"gpu": 2, "gpumem-percentage": 50, "gpucores": 30}


def test_without_an_amount_of_memory_cards_are_idle_and_stay_with_the_pod() -> None:
    """Two StatefulSet ranks of whole cards were seen on the same ones without this."""
    assert cards(release(WHOLE)) == {"gpu": 2, "gpucores": 100}


@pytest.mark.parametrize("hami", [PART, WHOLE], ids=["part", "whole"])
def test_hamis_scheduler_places_the_pods_also_where_its_webhook_fails(hami: dict[str, Any]) -> None:
    assert pod_spec(release(hami))["schedulerName"] == "hami-scheduler"
    assert pod_spec(release(hami, **{"scheduling.schedulerName": "gpu-sharing"}))["schedulerName"] == "gpu-sharing"


@pytest.mark.parametrize("hami", [PART, WHOLE], ids=["part", "whole"])
def test_nothing_is_in_the_pods_that_hami_refuses(hami: dict[str, Any]) -> None:
    """It refuses privileged pods and a node's name; its record takes the first container for the one with cards."""
    spec = pod_spec(release(hami))
    assert not {"nodeName", "initContainers"} & spec.keys()
    assert [container["name"] for container in spec["containers"]] == ["trainer"]
    assert "privileged" not in spec["containers"][0]["securityContext"]


def test_a_nodes_name_and_privileges_are_no_values() -> None:
    assert refusals(minimal({"scheduling.nodeName": "gpu-1", "hami": WHOLE})) == [
        "at '/scheduling': additional properties 'nodeName' not allowed"
    ]
    assert refusals(minimal({"securityContext.privileged": True, "hami": WHOLE})) == [
        "at '/securityContext': additional properties 'privileged' not allowed"
    ]


def test_ranks_of_a_release_never_share_a_card() -> None:
    """Different pods may, so the pods stand on different nodes; in one pod, cards are distinct."""
    manifests = release({**PART, "cardPolicy": "binpack"}, nodes=2)
    (constraint,) = pod_spec(manifests)["topologySpreadConstraints"]
    assert (constraint["topologyKey"], constraint["minDomains"]) == ("kubernetes.io/hostname", 2)
    assert constraint["whenUnsatisfiable"] == "DoNotSchedule"


def test_processes_with_whole_cards_run_without_hamis_library() -> None:
    """Known failure: it stalls or crashes NCCL in some versions. HAMi reads the container's own variables only."""
    assert environment(release(WHOLE))["CUDA_DISABLE_CONTROL"] == "true"
    assert "CUDA_DISABLE_CONTROL" not in environment(release({**WHOLE, "passThrough": False}))
    assert "CUDA_DISABLE_CONTROL" not in environment(release(PART))


def test_nccl_can_be_kept_off_direct_ways_between_cards() -> None:
    """With one of the two switched off it was still seen to crash."""
    indirect = environment(release({**PART, "ncclDirect": False}))
    assert (indirect["NCCL_P2P_DISABLE"], indirect["NCCL_SHM_DISABLE"]) == ("1", "1")
    assert not {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"} & environment(release(PART)).keys()


def test_policies_models_and_cards_are_annotations() -> None:
    chosen = {
        **PART,
        "cardPolicy": "numa",
        "nodePolicy": "spread",
        "cardTypes": ["A100", "H100 80GB"],
        "avoidCardTypes": ["A10"],
        "cardUuids": ["GPU-1", "GPU-2"],
        "avoidCardUuids": ["GPU-3"],
    }
    assert pod_annotations(release(chosen, podAnnotations={"nvidia.com/numa-bind": "true"})) == {
        "hami.io/gpu-scheduler-policy": "numa",
        "hami.io/node-scheduler-policy": "spread",
        "nvidia.com/use-gputype": "A100,H100 80GB",
        "nvidia.com/nouse-gputype": "A10",
        "nvidia.com/use-gpuuuid": "GPU-1,GPU-2",
        "nvidia.com/nouse-gpuuuid": "GPU-3",
        "nvidia.com/numa-bind": "true",
    }
    assert pod_annotations(release(WHOLE)) == {}


def test_without_hami_nothing_speaks_of_it() -> None:
    assert "hami" not in str(render(minimal({})))
    assert not {name for name in environment(render(minimal({}))) if name.startswith(("CUDA", "NCCL"))}


READINGS: list[tuple[object, str]] = [
    *(
        (
            form,
            f"which is too large a number for HAMi: it would start the pod with no card accounted to it; write MiB, "
            f"here {mebibytes}",
        )
        for form, mebibytes in (("12Gi", 12288), ("12G", 11444), ("12000Mi", 12000), ("1T", 953674))
    ),
    ("1Gi", "which HAMi takes for 1073741824 MiB, more than any card has; write MiB, here 1024"),
    ("2M", "which HAMi takes for 2000000 MiB, more than any card has; write MiB, here 1"),
    ("12Ki", "which HAMi takes for 12288 MiB: write 12288"),
    ("1.5k", "which HAMi takes for 1500 MiB: write 1500"),
    ("12 GB", "which is no whole number of MiB: write e.g. 12000 or 12k"),
    ("12e3", "which is no whole number of MiB: write e.g. 12000 or 12k"),
    ("012", "which is no whole number of MiB: write e.g. 12000 or 12k"),
    (24, "which HAMi takes for 24 MiB, less than CUDA needs for itself: write MiB, e.g. 24576 for 24 GiB"),
]


@pytest.mark.parametrize(("form", "sentence"), READINGS, ids=lambda case: str(case)[:30])
def test_an_amount_that_hami_would_misread_is_refused_with_what_it_would_do(form: object, sentence: str) -> None:
    assert refusals(minimal({"hami": {**PART, "memory": form}})) == [f"hami.memory is {form}, {sentence}"]


@pytest.mark.parametrize("memory", [512, 294912, "1k"])
def test_amounts_at_the_edges_are_accepted(memory: object) -> None:
    assert cards(release({**PART, "memory": memory}))


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        (
            {f"hami.{key}": value},
            f"hami.{key} is set but hami.enabled is false, so it would count for nothing: "
            "set hami.enabled to true or remove it",
        )
        for key, value in {
            "memory": "12k",
            "memoryPercent": 50,
            "cores": 50,
            "cardPolicy": "mutex",
            "nodePolicy": "spread",
            "cardTypes": ["A100"],
            "avoidCardTypes": ["A10"],
            "cardUuids": ["GPU-1"],
            "avoidCardUuids": ["GPU-1"],
        }.items()
    ),
    (
        {"resources.gpus": 0, "hami": WHOLE},
        "hami.enabled is true but resources.gpus is 0, and HAMi starts such a pod with no card accounted to it: "
        "set resources.gpus to the cards of a pod",
    ),
    (
        {"resources.gpuResource": "example.com/gpu", "hami": WHOLE},
        "resources.gpuResource is example.com/gpu but hami.enabled is true, whose memory and compute belong to "
        "nvidia.com/gpu: remove resources.gpuResource",
    ),
    (
        {"hami": {**PART, "memoryPercent": 50}},
        "hami.memory is 12k and hami.memoryPercent is 50, of which HAMi reads the first only: remove one of them",
    ),
    (
        {"hami": {**WHOLE, "cores": 50}},
        "hami.cores is 50 but neither hami.memory nor hami.memoryPercent is set, which is to ask for whole cards: "
        "set one of them or remove hami.cores",
    ),
    *(
        (
            {"nodes": nodes, "resources.gpus": gpus, "hami": {"enabled": True, key: value}},
            f"hami.{key} is set and {nodes * gpus} ranks train together, which are all as slow as the one whose card "
            "others use most: set hami.cardPolicy to mutex for cards that are idle at the start, or to spread or "
            "binpack to share them all the same",
        )
        for nodes, gpus, key, value in ((1, 2, "memory", "12k"), (2, 1, "memoryPercent", 50))
    ),
    (
        {"nodes": 2, "resources.gpus": 2, "hami": {**WHOLE, "cardUuids": ["GPU-1", "GPU-2", "GPU-3"]}},
        "hami.cardUuids names 3 cards but nodes and resources.gpus make 4: name them all or remove it",
    ),
    *(
        (
            {"scheduling.gang": gang, "hami": WHOLE},
            f"hami.enabled is true but scheduling.gang is {gang}, and one scheduler places a pod: "
            "set scheduling.gang to none",
        )
        for gang in ("volcano", "coscheduling")
    ),
    *(
        (
            {"scheduling.schedulerName": name, "hami": WHOLE},
            f"scheduling.schedulerName is {name} but hami.enabled is true, and HAMi leaves such pods alone: "
            "leave the name empty",
        )
        for name in ("default-scheduler", "volcano", "scheduler-plugins-scheduler")
    ),
    (
        {"podLabels": {"hami.io/webhook": "ignore"}, "hami": WHOLE},
        "podLabels[hami.io/webhook] is set but hami.enabled is true, and HAMi leaves such pods alone: remove it",
    ),
    (
        {"podAnnotations": {"hami.io/gpu-scheduler-policy": "mutexx"}, "hami": WHOLE},
        "podAnnotations[hami.io/gpu-scheduler-policy] is set, where HAMi takes an unknown value without a word: "
        "use hami.cardPolicy",
    ),
    (
        {"network.env": {"NCCL_SHM_DISABLE": "1"}, "hami": WHOLE},
        "network.env.NCCL_SHM_DISABLE is set but hami.enabled is true: use hami.ncclDirect",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=lambda case: str(case)[:60])
def test_what_hami_would_ignore_is_refused(changes: dict[str, Any], sentence: str) -> None:
    assert refusals(minimal(changes)) == [sentence]


ACCEPTED: list[dict[str, Any]] = [
    {"hami": {"enabled": True, "memory": "12k"}},
    {"resources.gpus": 2, "hami": {"enabled": True, "memory": "12k", "cores": 100}},
    {"scheduling.gang": "native", "nodes": 2, "hami": WHOLE},
    {"network.env": {"NCCL_P2P_DISABLE": "1", "CUDA_DISABLE_CONTROL": "true"}},
    {"podAnnotations": {"hami.io/gpu-scheduler-policy": "mutex"}},
]


@pytest.mark.parametrize("changes", ACCEPTED, ids=lambda case: str(case)[:60])
def test_what_hami_counts_right_is_accepted(changes: dict[str, Any]) -> None:
    assert render(minimal(changes))


@pytest.mark.parametrize(
    ("key", "value"), [("cardPolicy", "mutexx"), ("nodePolicy", "numa"), ("memoryPercent", 101), ("cores", 200)]
)
def test_an_unknown_policy_or_part_is_refused_by_the_schema(key: str, value: object) -> None:
    """HAMi takes unknown policies without a word and clamps 200 percent."""
    (sentence,) = refusals(minimal({"hami": {"enabled": True, key: value}}))
    assert sentence.startswith(f"at '/hami/{key}")
