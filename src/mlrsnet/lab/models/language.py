"""What every language model of the lab answers to."""

from typing import TypeAlias

import torch
from torch import Tensor, nn

State: TypeAlias = tuple[Tensor, ...]
"""Memory between two pieces of a text; () for a model without."""


class LanguageModel(nn.Module):
    """Base: next-token logits from tokens and the memory of what came before."""

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (T, B, vocabulary) of tokens (T, B), int64, and the state after them, which carries gradient."""
        raise NotImplementedError

    def initial_state(self, batch: int, device: torch.device | str) -> State:
        """The state before any token, for `batch` texts side by side."""
        raise NotImplementedError
