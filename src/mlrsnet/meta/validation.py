"""The validation pass of a meta-update: the gradients of a held-out batch, and no trace in the training."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Gradients = dict[Tensor, Tensor]
"""By parameter; none where a parameter has none."""


def gradients_of(
    val_loss: Callable[[], Tensor],
    model: nn.Module,
    parameters: Sequence[Tensor],
    loss_scale: float = 1.0,
    random: dict[str, Tensor] | None = None,
) -> tuple[Tensor, Gradients]:
    """A validation loss at the current weights, and the gradients of so many times that. `random`: see `no_trace`."""
    alone = model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()
    with no_trace(model, parameters, random), alone:
        loss = val_loss()
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            found = (
                f"shape {tuple(loss.shape)}, requires_grad={loss.requires_grad}" if isinstance(loss, Tensor) else loss
            )
            raise ValueError(
                f"val_loss() must return a scalar tensor with a gradient, got {found}: return the mean loss of a batch"
            )
        (loss_scale * loss.reshape(())).backward()
        return loss.detach(), {p: p.grad for p in parameters if p.grad is not None}


def by_parameter(model: nn.Module, gradients: Sequence[Tensor | None]) -> Gradients:
    """Gradients that the user computed, in the order of `model.parameters()`."""
    own = list(model.parameters())
    if len(own) != len(gradients):
        raise ValueError(
            f"val_gradients() must return one gradient or None for each of the model's {len(own)} parameters, got {len(gradients)}"
        )
    return {p: gradient for p, gradient in zip(own, gradients, strict=True) if gradient is not None}


@contextmanager
def no_trace(model: nn.Module, parameters: Sequence[Any], random: dict[str, Tensor] | None = None) -> Iterator[None]:
    """Restore gradients, buffers, random state and train/eval modes at the end.

    Inside, random numbers continue from the states in `random` (by device), which are updated. Otherwise every pass would
    draw the same numbers whenever the training itself draws none.
    """
    modules = list(model.modules())
    own = [p for module in modules for p in module.parameters(recurse=False)]
    gradients = {parameter: parameter.grad for parameter in (*own, *parameters)}
    places = [
        (module, name, buffer, buffer.detach().clone(), buffer._version)
        for module in modules
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False)
    ]
    modes = [(module, module.training) for module in modules]
    for parameter in gradients:
        parameter.grad = None
    try:
        with _random_numbers(
            sorted({p.device.index for p in gradients if p.is_cuda}), {} if random is None else random
        ):
            yield
    finally:
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        for module, name, buffer, before, version in places:
            if _is_writable(buffer) or buffer._version != version:  # batch norm and CUDA graphs change no version
                with torch.no_grad():
                    buffer.copy_(before)
            module._buffers[name] = buffer  # a module may have assigned a new tensor, or deleted it
        for module, training in modes:
            module.training = training


@contextmanager
def _random_numbers(devices: list[int], states: dict[str, Tensor]) -> Iterator[None]:
    """Use and update a separate random state per device: the one in `states`, or a copy of the current one."""
    with torch.random.fork_rng(devices=devices):
        if "cpu" in states:
            torch.set_rng_state(states["cpu"])
        for device in devices:
            if f"cuda:{device}" in states:
                torch.cuda.set_rng_state(states[f"cuda:{device}"], device)
        try:
            yield
        finally:
            states["cpu"] = torch.get_rng_state()
            states.update((f"cuda:{device}", torch.cuda.get_rng_state(device)) for device in devices)


def _is_writable(buffer: Tensor) -> bool:
    """Whether every entry has a place of its own."""
    return buffer.layout != torch.strided or 0 not in buffer.stride()
