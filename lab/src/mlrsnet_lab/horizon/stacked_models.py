"""Many copies of one model, run in one call with `torch.func` over stacked weights and buffers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.linalg import vector_norm
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.dropout import _DropoutNd

from mlrsnet_lab.horizon.compute import Compute

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


class StackedModels:
    """One network per member: trained weights in `rows`, everything else in `fixed`.

    Args:
        model: the network to copy. It is converted to the precision's type for `fp64`, and has to have it for the others.
        members: how many copies.
        run: has the precision.
    """

    def __init__(self, model: nn.Module, members: int, run: Compute) -> None:
        self.dtype = run.dtype
        self.model = self._converted(model)
        self.rows = Rows(self.model, members)
        self.fixed = {name: value.detach().expand(members, *value.shape).clone() for name, value in _fixed(self.model)}

    @property
    def has_dropout(self) -> bool:
        """Whether any layer drops values at random."""
        return any(isinstance(module, _DropoutNd) and module.p for module in self.model.modules())

    def fill(self, rows: slice, model: nn.Module) -> None:
        """Copy a model's weights and buffers into these rows."""
        model = self._converted(model)
        self.rows.fill(rows, model)
        for name, value in _fixed(model):
            self.fixed[name][rows] = value.to(self.fixed[name].device)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(members, batch, ..., classes) from inputs (members, batch, ...)."""

        def one(weights: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor) -> Any:
            return functional_call(self.model, (weights, fixed), (x,))

        with sdpa_kernel(SDPBackend.MATH):  # vmap cannot batch the fused ones
            try:
                return torch.vmap(one, randomness="different")(self.rows.views, self.fixed, inputs)
            except RuntimeError as error:
                if "Batching rule not implemented" not in str(error):
                    raise
                raise RuntimeError(
                    f"model must be one that torch.func can batch, got {type(self.model).__name__} "
                    f"({str(error).splitlines()[0]}): write recurrent cells as plain matrix products, not nn.LSTM, whose "
                    "fused kernel cannot be batched"
                ) from error

    def _converted(self, model: nn.Module) -> nn.Module:
        if self.dtype == torch.float64:
            return model.double()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and parameter.dtype != self.dtype:
                raise TypeError(f"model must have float32 parameters, got {parameter.dtype} in {name}: call .float()")
        return model


def _fixed(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Everything that no gradient changes: buffers and frozen parameters."""
    frozen = [(name, p.detach()) for name, p in model.named_parameters() if not p.requires_grad]
    return [*model.named_buffers(), *frozen]
