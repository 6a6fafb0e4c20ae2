"""Small networks for pieces of text, of operations that `torch.func` can batch: hundreds of copies train at once.

(B, L) tokens to (B, L, classes): what comes next, at every place.
"""

import torch
from torch import Tensor, nn

from mlrsnet_lab.models.transformer import Block


class RecurrentNet(nn.Module):
    """An embedding, one LSTM cell as plain matrix products, and a linear layer."""

    def __init__(self, vocabulary: int, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(vocabulary, width)
        self.x_to_gates, self.h_to_gates = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width, bias=False)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of pieces of text; each starts with an empty memory."""
        from_x = self.x_to_gates(self.tokens(tokens))
        h = c = from_x.new_zeros(len(tokens), self.width)
        seen = []
        for place in range(tokens.shape[1]):
            i, f, o, g = (from_x[:, place] + self.h_to_gates(h)).chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            seen.append(h)
        return self.out(torch.stack(seen, dim=1))


class AttentionNet(nn.Module):
    """Token and position embeddings, blocks of the lab's transformer without dropout, and a linear layer."""

    def __init__(self, vocabulary: int, length: int, width: int = 32, depth: int = 1) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 2, 0.0) for _ in range(depth)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of pieces of text; every position reads the ones before it."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.out(self.norm(self.blocks(x.transpose(0, 1)).transpose(0, 1)))
