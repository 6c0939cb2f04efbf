"""Which network adapter sits by which GPU, from what nvidia-smi prints on machines of several shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.machine.filter_plugins.machine import nearest_adapters, topology
from tests.roles.templating import load

SAMPLES = Path(__file__).parent / "samples"


def printed(sample: str) -> str:
    """What `nvidia-smi topo -m` prints on a sample machine."""
    text: str = load(SAMPLES / f"{sample}.yml")["smi"]["topology"]
    return text


def test_on_two_sockets_each_gpu_has_the_adapter_behind_its_own_switch() -> None:
    near = nearest_adapters(topology(printed("dgx-h100")))

    assert near == {
        "GPU0": ["mlx5_0"],
        "GPU1": ["mlx5_3"],
        "GPU2": ["mlx5_4"],
        "GPU3": ["mlx5_5"],
        "GPU4": ["mlx5_6"],
        "GPU5": ["mlx5_9"],
        "GPU6": ["mlx5_10"],
        "GPU7": ["mlx5_11"],
    }


def test_the_matrix_agrees_with_the_bridges_that_pci_shows() -> None:
    facts = load(SAMPLES / "dgx-h100.yml")
    by_bridge = {device["path"][0]: device["name"] for device in facts["rdma"]}

    near = nearest_adapters(topology(printed("dgx-h100")))

    assert [near[f"GPU{index}"] for index in range(8)] == [[by_bridge[gpu["path"][0]]] for gpu in facts["gpus"]]


def test_links_between_gpus_and_the_cpus_near_them_are_told() -> None:
    gpu = topology(printed("dgx-h100"))["GPU5"]

    assert gpu["links"]["GPU0"] == "NV18"
    assert (gpu["cpus"], gpu["numa"]) == ("56-111,168-223", "1")


def test_adapters_that_are_equally_near_are_all_named() -> None:
    near = nearest_adapters(topology(printed("grace")))

    assert near["GPU0"] == near["GPU1"] == ["mlx5_0", "mlx5_1"]
    assert near["GPU3"] == ["mlx5_2", "mlx5_3"]


def test_on_grace_the_numa_nodes_of_a_gpu_s_memory_are_told() -> None:
    assert topology(printed("grace"))["GPU3"]["numa"] == "1,26-33"


@pytest.mark.parametrize("sample", ["vm", "one-socket"])
def test_a_machine_without_adapters_has_none_near(sample: str) -> None:
    assert set(map(tuple, nearest_adapters(topology(printed(sample))).values())) == {()}


def test_a_cloud_machine_tells_its_cpus() -> None:
    assert topology(printed("vm"))["GPU0"] == {"links": {}, "cpus": "0-7", "numa": "N/A"}


def test_an_underlined_heading_and_adapters_named_in_it_are_understood() -> None:
    # Drivers before 525 put the adapters' own names above the columns.
    text = (
        "\t\x1b[4mGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
        "GPU0\t X \tNV12\tPXB\t0-31\t0\nGPU1\tNV12\t X \tSYS\t32-63\t1\n"
        "mlx5_0\tPXB\tSYS\t X \n\nLegend:\n\n  X    = Self\n"
    )

    assert nearest_adapters(topology(text)) == {"GPU0": ["mlx5_0"], "GPU1": []}
    assert topology(text)["GPU1"]["numa"] == "1"


def test_no_matrix_is_no_gpu() -> None:
    assert topology("") == topology("Failed to initialize NVML: Driver/library version mismatch\n") == {}
