"""The paper's LSTM language model (Section 4.1.2)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from mlrsnet_lab import checks
from mlrsnet_lab.models.parts import LanguageModel, State, dropout_rate

INIT_RANGE = 0.1
"""Range of the initial embedding, as in PyTorch's word_language_model."""


class LSTMLanguageModel(LanguageModel):
    """Embedding, LSTM layers and an output layer that shares the embedding's matrix and has a bias of its own.

    Dropout follows the embedding and the first and second LSTM layer, as Section 4.1.2 says: the third layer of the
    3-layer network has none after it. The state is (h_1, c_1, h_2, c_2, ...), each (1, B, hidden).

    Args:
        vocabulary: number of tokens.
        layers: 2 or 3 in the paper.
        hidden: size of the LSTM cells and of the embedding.
        dropout: 0.5 in the paper.
        drop_all: dropout after every layer, as in the authors' program. It makes no difference with 2 layers.
    """

    def __init__(
        self, vocabulary: int, *, layers: int = 2, hidden: int = 512, dropout: float = 0.5, drop_all: bool = False
    ) -> None:
        super().__init__()
        self.hidden, rate = checks.whole_number("hidden", hidden), dropout_rate(dropout)
        self.embedding = nn.Embedding(vocabulary, self.hidden)
        nn.init.uniform_(self.embedding.weight, -INIT_RANGE, INIT_RANGE)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.dropout = nn.Dropout(rate)
        count = checks.whole_number("layers", layers)
        # One module a layer: every mask then comes from torch's generator, which CUDA graphs and checkpoints know about,
        # while the dropout inside nn.LSTM keeps a state of its own in cuDNN.
        self.layers = nn.ModuleList(nn.LSTM(self.hidden, self.hidden) for _ in range(count))
        self.dropouts = nn.ModuleList(nn.Dropout(rate) if drop_all or i < 2 else nn.Identity() for i in range(count))

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (T, B, vocabulary) and the state after the last token."""
        if len(state) != 2 * len(self.layers):
            raise ValueError(
                f"state must hold h and c of {len(self.layers)} layers, got {len(state)} tensors: start with initial_state"
            )
        x = self.dropout(self.embedding(tokens))
        after: State = ()
        for i, (layer, dropout) in enumerate(zip(self.layers, self.dropouts, strict=True)):
            x, memory = layer(x, (state[2 * i], state[2 * i + 1]))
            x, after = dropout(x), after + memory
        return linear(x, self.embedding.weight, self.bias), after

    def initial_state(self, batch: int, device: torch.device | str) -> State:
        """Zeros for every layer."""
        shape = (1, checks.whole_number("batch", batch), self.hidden)
        return tuple(torch.zeros(shape, dtype=self.bias.dtype, device=device) for _ in range(2 * len(self.layers)))
