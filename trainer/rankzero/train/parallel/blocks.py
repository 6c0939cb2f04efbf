"""The blocks of a model: what it repeats. They are sharded, recomputed and compiled one by one."""

from __future__ import annotations

from collections import Counter

from torch import nn


def block_types(model: nn.Module) -> set[type[nn.Module]]:
    """Classes of modules with parameters and parts of their own that stand twice or more in one list of modules."""
    found: set[type[nn.Module]] = set()
    for parent in model.modules():
        if isinstance(parent, nn.ModuleList | nn.Sequential):
            counts = Counter(type(child) for child in parent if is_composed(child))
            found |= {kind for kind, count in counts.items() if count > 1}
    return found - {nn.Sequential, nn.ModuleList}


def is_composed(module: nn.Module) -> bool:
    """True for a module that has parameters, and children."""
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def blocks_of(model: nn.Module, kinds: set[type[nn.Module]]) -> list[nn.Module]:
    """The outermost modules of these classes in ``model``, in its order."""
    if type(model) in kinds:
        return [model]
    return [block for child in model.children() for block in blocks_of(child, kinds)]
