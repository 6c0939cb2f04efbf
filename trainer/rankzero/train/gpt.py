"""The bundled GPT: a plain model of consecutive layers, and how its layers can be split for tensor parallelism."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel


class Embedding(nn.Module):
    """Bytes and their places: (batch, length) -> (batch, length, width)."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.byte, self.place = nn.Embedding(256, width), nn.Embedding(context, width)

    def forward(self, text: Tensor) -> Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        return torch.add(self.byte(text), self.place(places))


class Block(nn.Module):
    """Causal attention, then two layers for each byte alone; both add to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head = width // heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> the same."""
        y = self.before_attention(x)
        query, key, value = (
            part(y).unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = torch.add(x, self.out(seen.transpose(1, 2).flatten(2)))
        return torch.add(x, self.down(F.gelu(self.up(self.before_mlp(x)))))


def gpt(width: int = 128, heads: int = 4, blocks: int = 4, context: int = 128) -> nn.Sequential:
    """(batch, length) bytes -> (batch, length, 256) logits of the byte that follows each."""
    layers: dict[str, nn.Module] = {"embedding": Embedding(width, context)}
    layers |= {f"block{i}": Block(width, heads) for i in range(blocks)}
    # With a bias the result would be a view, of which FSDP warns in each run.
    logits = nn.Linear(width, 256, bias=False)
    return nn.Sequential(OrderedDict(layers, norm=nn.LayerNorm(width), logits=logits))


def tensor_plan() -> dict[str, ParallelStyle]:
    """Each rank has some of the heads and of the hidden units; their sums are all that ranks exchange."""
    split = {f"block*.{name}": ColwiseParallel() for name in ("query", "key", "value", "up")}
    return {**split, "block*.out": RowwiseParallel(), "block*.down": RowwiseParallel()}
