"""A small vision transformer (Dosovitskiy et al., 2021) for small pictures."""

import torch
from torch import Tensor, nn

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import Shape, dropout_rate
from mlrsnet_lab.models.transformer import Block, check_heads

POSITION_STD = 0.02
"""Of the first position embeddings, as in the paper; everything else has torch's own initialisation."""


class VisionTransformer(nn.Module):
    """Patches as tokens, pre-norm blocks, the mean over tokens, and a linear layer.

    Args:
        shape: of a picture; what is left beside whole patches is not looked at.
        num_classes: outputs.
        patch: side of a patch.
        layers, width, heads, dropout: of the blocks.
    """

    def __init__(
        self,
        shape: Shape,
        num_classes: int,
        *,
        patch: int = 4,
        layers: int = 4,
        width: int = 64,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels, height, columns = shape
        check_heads(width, heads)
        if checks.whole_number("patch", patch) > min(height, columns):
            raise ValueError(f"patch must be at most the picture's sides {height} and {columns}, got {patch}")
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.randn((height // patch) * (columns // patch), 1, width) * POSITION_STD)
        self.dropout = nn.Dropout(dropout_rate(dropout))
        count = checks.whole_number("layers", layers)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout, causal=False) for _ in range(count)))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, num_classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """(B, C, H, W) to logits."""
        tokens = self.embed(pictures).flatten(2).permute(2, 0, 1)  # (T, B, width)
        x = self.blocks(self.dropout(tokens + self.positions))
        return self.out(self.norm(x).mean(0))
