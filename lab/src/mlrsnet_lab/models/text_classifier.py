"""A small transformer that reads a whole piece of text and says its class."""

from torch import Tensor, nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import dropout_rate
from mlrsnet_lab.models.transformer import Block, check_heads

PAD = 0
"""The token that fills short pieces; nothing reads it."""


class TextClassifier(nn.Module):
    """Token and position embeddings, pre-norm blocks that look both ways, the mean over tokens, and a linear layer.

    Args:
        vocabulary: number of tokens.
        length: of a piece, in tokens.
        num_classes: outputs.
        layers, width, heads, dropout: of the blocks.
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        num_classes: int,
        *,
        layers: int = 2,
        width: int = 64,
        heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_heads(width, heads)
        rate = dropout_rate(dropout)
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(rate)
        count = checks.whole_number("layers", layers)
        self.blocks = nn.ModuleList(Block(width, heads, rate, causal=False) for _ in range(count))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, length) to logits. A piece without any token but padding counts as one of padding alone."""
        there = tokens != PAD
        there = there | ~there.any(1, keepdim=True)
        x = self.dropout(self.tokens(tokens.t()) + self.positions.weight[: tokens.shape[1], None])
        for block in self.blocks:
            x = block(x, there[:, None, None])
        weights = there.t().unsqueeze(-1).to(x.dtype)
        return self.out((self.norm(x) * weights).sum(0) / weights.sum(0))
