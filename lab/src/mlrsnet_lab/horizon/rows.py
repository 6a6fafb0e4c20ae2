"""The weights of many copies of one model, in one matrix."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

ALIGNMENT = 32
"""Each parameter starts at a multiple of this many numbers in its row, because tensor cores need aligned addresses."""


class Rows:
    """`weights` (members, size) holds one member per row; `views` are the parameters (members, ...) by name.

    An optimizer update of all members is then a few operations on one matrix, whatever the network.

    Args:
        model: gives the names, shapes, type and device.
        members: how many copies.
    """

    def __init__(self, model: nn.Module, members: int) -> None:
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not parameters:
            raise ValueError("model must have parameters to train, got none that requires a gradient")
        like, starts, end = next(iter(parameters.values())), {}, 0
        for name, parameter in parameters.items():
            starts[name] = end
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.weights = torch.zeros(members, end, dtype=like.dtype, device=like.device)
        self.views = {
            name: self.weights[:, start : start + parameters[name].numel()]
            .view(members, *parameters[name].shape)
            .requires_grad_()
            for name, start in starts.items()
        }
        chosen = [name for name, one in parameters.items() if one.ndim >= 2] or list(parameters)
        self.shapes = [parameters[name].shape for name in chosen]
        """Of the matrices; of all parameters where there is no matrix."""
        self._places = [(starts[name], starts[name] + parameters[name].numel()) for name in chosen]

    def lengths(self, values: Tensor) -> Tensor:
        """(members, L) norms of the matrices in a matrix such as `weights`."""
        return torch.stack([vector_norm(values[:, start:end], dim=1) for start, end in self._places], dim=1)

    @torch.no_grad()
    def fill(self, rows: slice, model: nn.Module) -> None:
        """Copy the model's weights into these rows."""
        parameters = dict(model.named_parameters())
        for name, view in self.views.items():
            view[rows] = parameters[name].to(self.weights)

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """One matrix (members, size) from the gradients of the views."""
        parts = []
        for gradient in gradients:
            flat = gradient.flatten(1)
            parts.append(flat)
            if padding := -flat.shape[1] % ALIGNMENT:
                parts.append(flat.new_zeros(1, 1).expand(len(flat), padding))
        return torch.cat(parts, dim=1)
