"""The interface of the lab's language models."""

from typing import TypeAlias

import torch
from torch import Tensor, nn

State: TypeAlias = tuple[Tensor, ...]
"""Memory between two pieces of a text; () for a model without memory."""


class LanguageModel(nn.Module):
    """Predicts the next token from tokens and the memory of earlier ones."""

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits (T, B, vocabulary) of tokens (T, B), int64, and the differentiable state after them."""
        raise NotImplementedError

    def initial_state(self, batch: int, device: torch.device | str) -> State:
        """The state before any token, for `batch` texts side by side."""
        raise NotImplementedError
