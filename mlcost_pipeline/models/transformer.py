"""The network of SASRec (Kang, McAuley 2018, arXiv 1808.09781): causal self-attention over a user's last items."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Attention, then a two-layer network, each with layer norm before it and a shortcut around it."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_inner = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """``hidden`` (b, l, d); ``mask`` (b, 1, l, l) is 0 where a place may look and very negative elsewhere."""
        batch, length, width = hidden.shape
        split = self.query_key_value(self.norm_attention(hidden)).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        weight = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(width / self.heads) + mask, dim=-1)
        mixed = (self.dropout(weight) @ value).transpose(1, 2).reshape(batch, length, width)
        hidden = hidden + self.dropout(self.out(mixed))
        out: Tensor = hidden + self.dropout(self.inner(self.norm_inner(hidden)))
        return out


class Transformer(nn.Module):
    """Item numbers in, one vector a place out. Number ``n_items`` is padding and is no item."""

    def __init__(self, n_items: int, params: dict[str, Any]) -> None:
        super().__init__()
        width = int(params["factors"])
        self.padding = n_items
        self.item = nn.Embedding(n_items + 1, width, padding_idx=n_items)
        self.place = nn.Embedding(int(params["max_length"]), width)
        self.dropout = nn.Dropout(float(params["dropout"]))
        self.blocks = nn.ModuleList(
            Block(width, int(params["heads"]), float(params["dropout"])) for _ in range(int(params["blocks"]))
        )
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.item.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)
        with torch.no_grad():
            self.item.weight[n_items].zero_()

    def forward(self, sequences: Tensor) -> Tensor:
        """(b, l) item numbers, padded on the left → (b, l, d); a score is the product with an item's embedding."""
        length = sequences.shape[1]
        real = sequences != self.padding
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = causal[None, :, :] & real[:, None, :]
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, -1e9)[:, None]
        hidden = self.dropout(self.item(sequences) + self.place.weight[-length:])
        for block in self.blocks:
            hidden = block(hidden, mask)
        normed: Tensor = self.norm(hidden)
        return normed
