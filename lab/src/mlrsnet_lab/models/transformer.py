"""A small decoder-only transformer."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import LanguageModel, State, dropout_rate

INIT_STD = 0.02
"""Standard deviation of the initial matrices, as in GPT-2."""


class Attention(nn.Module):
    """Self-attention with several heads. Causal: position t reads the positions up to t; otherwise all of them."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(T, B, width) to the same; `mask`, (B, 1, 1, T), is False at positions that nobody may read."""
        q, k, v = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 1, 3, 0, 4)  # each (B, heads, T, size)
        rate = self.dropout if self.training else 0.0
        heads = scaled_dot_product_attention(q, k, v, mask, dropout_p=rate, is_causal=self.causal)
        return self.output(heads.permute(2, 0, 1, 3).flatten(2))


class Block(nn.Module):
    """Attention, then two linear layers with GELU; each after a layer norm, with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool = True) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, causal)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.activation, self.dropout = nn.GELU(), nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(T, B, width) to the same."""
        x = x + self.dropout(self.attention(self.norm1(x), mask))
        return x + self.dropout(self.narrow(self.activation(self.wide(self.norm2(x)))))


def check_heads(width: int, heads: int) -> None:
    """Raise unless the width is a multiple of the number of heads."""
    if checks.whole_number("width", width) % checks.whole_number("heads", heads):
        raise ValueError(f"width must be a multiple of heads, got {width!r} and {heads!r}: use {heads * 32}")


class TransformerLanguageModel(LanguageModel):
    """Token and position embeddings, pre-norm blocks, and an output that shares the token embedding's matrix.

    It has no memory: each input is read from its first token, so the state is ().

    Args:
        vocabulary: number of tokens.
        layers: number of blocks.
        width: size of an embedding, a multiple of `heads`.
        heads: of the attention.
        dropout: on the embeddings, the attention weights and each residual branch.
        length: the longest input, in tokens.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        layers: int = 4,
        width: int = 128,
        heads: int = 4,
        dropout: float = 0.1,
        length: int = 256,
    ) -> None:
        super().__init__()
        count, rate = checks.whole_number("layers", layers), dropout_rate(dropout)
        check_heads(width, heads)
        self.length = checks.whole_number("length", length)
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(self.length, width)
        self.dropout = nn.Dropout(rate)
        self.blocks = nn.ModuleList(Block(width, heads, rate) for _ in range(count))
        self.norm = nn.LayerNorm(width)
        self._initialise()

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (T, B, vocabulary), T at most `length`, and ()."""
        if len(tokens) > self.length:
            raise ValueError(
                f"tokens must be at most {self.length} long, got {len(tokens)}: shorten them or build with a larger length"
            )
        x = self.dropout(self.tokens(tokens) + self.positions.weight[: len(tokens), None])
        for block in self.blocks:
            x = block(x)
        return linear(self.norm(x), self.tokens.weight), ()

    def initial_state(self, batch: int, device: torch.device | str) -> State:
        """(): a transformer has no memory between pieces."""
        return ()

    def _initialise(self) -> None:
        """GPT-2's: N(0, 0.02), the last matrix of each residual branch smaller, so that depth does not add variance."""
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                last = name.endswith(("output.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=INIT_STD / math.sqrt(2 * len(self.blocks)) if last else INIT_STD)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
