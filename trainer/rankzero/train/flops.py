"""How much a model computes, and how much a GPU could: for the share that a training uses (MFU)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

PEAKS = (
    # Dense BF16 in 1e12 FLOP/s; data sheets show twice as much where they mean 2:4 sparsity. First match counts.
    ("GB300", 2500.0),  # NVIDIA, GB300 NVL72
    ("GB200", 2500.0),  # NVIDIA, GB200 NVL72
    ("B300", 2250.0),  # NVIDIA, HGX B300
    ("B200", 2250.0),  # NVIDIA, HGX B200
    ("GH200", 989.4),  # NVIDIA, GH200 data sheet
    ("H200 NVL", 835.5),  # NVIDIA, H200 data sheet
    ("H200", 989.4),
    ("H100 NVL", 835.5),  # NVIDIA, H100 data sheet
    ("H100 PCIe", 756.4),
    ("H100", 989.4),
    ("H800 PCIe", 756.4),  # the H100's, with slower links
    ("H800", 989.4),
    ("H20", 148.0),
    ("A100", 312.0),  # NVIDIA, A100 data sheet
    ("A800", 312.0),  # the A100's, with slower links
    ("A30", 165.0),  # NVIDIA, A30 data sheet
    ("L40S", 362.05),  # NVIDIA, L40S data sheet
    ("L40", 181.05),  # NVIDIA, L40 data sheet
    ("MI325X", 1307.4),  # AMD, Instinct MI325X data sheet
    ("MI300X", 1307.4),  # AMD, Instinct MI300X data sheet
    ("MI250X", 191.5),  # AMD, Instinct MI250X data sheet: one of its two dies, which is one device
)


def peak(name: str) -> float:
    """What a GPU of this name (``torch.cuda.get_device_name()``) can do at most, FLOP/s; 0 where that is not known."""
    words = f"{name.replace('-', ' ')} ".lower()
    if " mig " in words:  # a part of one
        return 0.0
    return next((tera * 1e12 for part, tera in PEAKS if f"{part} ".lower() in words), 0.0)


def count(loss: Callable[[], Tensor]) -> int:
    """FLOPs of ``loss()`` and its backward pass, as PyTorch counts them: matrix products, convolutions, attention.

    Call it on one process with the plain model, before it is distributed, compiled or made to compute activations
    again: what a model needs counts, not what is done. On device `meta` it takes no time and no memory. Gradients that
    it leaves are the caller's to drop.
    """
    # Not above: where there is no Triton, to import it prints a warning in each process of each run.
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        loss().backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops())


def of_transformer_token(parameters: int, *, layers: int, width: int, sequence: int) -> float:
    """FLOPs of a decoder for one token, forward and backward: 6 N + 12 L d T (Chowdhery et al. 2022, appendix B).

    ``parameters`` without the embeddings, ``width`` of the residual stream (heads times their size), ``sequence`` in
    tokens.
    """
    return 6.0 * parameters + 12.0 * layers * width * sequence
