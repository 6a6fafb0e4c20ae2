"""Many copies of one model, run in one call with `torch.func` over stacked weights and buffers."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import batch_norm, instance_norm
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from mlrsnet_lab.horizon.compute import Compute, at_least_single
from mlrsnet_lab.horizon.rows import Rows

NORMS_WITH_STATISTICS = (batch_norm, instance_norm, torch.batch_norm, torch.instance_norm)


class StackedModels:
    """One network per member: trained weights in `rows`, everything else in `fixed`.

    Args:
        model: the network to copy. It is converted to the precision's type for `fp64`, and has to have it for the others.
        members: how many copies.
        run: has the precision.
    """

    def __init__(self, model: nn.Module, members: int, run: Compute) -> None:
        self.dtype, self.is_bf16 = run.dtype, run.precision == "bf16"
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

        with ExitStack() as settings:
            settings.enter_context(sdpa_kernel(SDPBackend.MATH))  # vmap cannot batch the fused ones
            if self.is_bf16:
                # No cache of cast weights: a captured step would go on reading the old ones.
                settings.enter_context(torch.autocast(inputs.device.type, torch.bfloat16, cache_enabled=False))
                settings.enter_context(SingleNorms())
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


class SingleNorms(TorchFunctionMode):
    """Normalise half-precision inputs in float32, with float32 statistics, as autocast does outside `torch.vmap`.

    Inside `torch.vmap` torch gives the norm unit weights of the input's type, and a GPU then refuses running statistics of
    another type ("Expected running_mean to have type BFloat16"). The output has the input's type again.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Intercept the norms that have running statistics; call everything else as it is."""
        kwargs = kwargs or {}
        if func not in NORMS_WITH_STATISTICS or not args:
            return func(*args, **kwargs)
        return func(at_least_single(args[0]), *args[1:], **kwargs).to(args[0].dtype)


def _fixed(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Everything that no gradient changes: buffers and frozen parameters."""
    frozen = [(name, p.detach()) for name, p in model.named_parameters() if not p.requires_grad]
    return [*model.named_buffers(), *frozen]
