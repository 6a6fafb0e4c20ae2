"""The mathematics of Algorithm 1, for the user's own optimizer: provisional step, hypergradient, rescaled step.

For every optimizer in `LINEAR`, the new weights lie on a straight line in the LR, w(alpha) = w_t - alpha d. The optimizer's
state (momentum, second moments) does not depend on alpha. So one real optimizer step gives d, and

    d L_val(w(alpha)) / d alpha = -<grad L_val(w(alpha)), d>

takes one validation gradient and one dot product. It needs no functional model, no copy of the optimizer and no
second-order graph. A step at another LR is d rescaled. alpha is the LR of the first group whose LR is not 0; the other
groups keep their ratio to it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from mlrsnet._engine.groups import set_lr
from mlrsnet._engine.ranks import Group, num_ranks, sum_over_ranks

LINEAR = {
    getattr(optim, name)
    for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Muon")
    if hasattr(optim, name)
}
"""Optimizers whose step is linear in the LR and whose state does not depend on it. The exact type counts."""

MEASURING_LR = 2.0**12
"""The LR of the step that d is read from. At a small LR, w_new - w_old loses most digits of d. A power of two scales exactly."""


def check_linear(optimizer: Optimizer, assume_linear: bool) -> None:
    """Refuse optimizers that are not known to be linear in the LR, and weights with too few digits."""
    if not assume_linear and type(optimizer) not in LINEAR:
        known = ", ".join(sorted(kind.__name__ for kind in LINEAR))
        raise TypeError(
            f"optimizer must take steps that are linear in its LR, and {type(optimizer).__name__} is not known to (its step "
            f"sizes, averages or line searches may depend on the LR in other ways): use one of {known}, or pass "
            "assume_linear=True if w_new = w_old - lr * d, where neither d nor the optimizer's state depends on lr"
        )
    check_dtypes(optimizer)


def check_dtypes(optimizer: Optimizer) -> None:
    """Refuse weights with too few digits to read a step from."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"the optimizer's parameters must be float32 or float64, got {parameter.dtype}: the step is read from "
                    "the weights; keep them in float32 and use autocast"
                )


class OpenStep:
    """One optimizer step whose LR can still change. The weights are at w_t - alpha d.

    It keeps one copy of the weights: their change at `MEASURING_LR`. Every other step is a multiple of it.

    Args:
        optimizer: the user's, with gradients in place.
        take: takes the step: `optimizer.step`, or a GradScaler's.
        ratios: the groups' LRs relative to alpha.
        alpha: the first LR.
    """

    @torch.no_grad()
    def __init__(self, optimizer: Optimizer, take: Callable[[], Any], ratios: list[float], alpha: float) -> None:
        groups = list(zip(optimizer.param_groups, ratios, strict=True))
        self.parameters = [p for group, ratio in groups if ratio for p in group["params"] if p.grad is not None]
        self.all_parameters = [p for group, _ in groups for p in group["params"]]
        if not self.parameters:
            raise RuntimeError(
                "no parameter of the optimizer has a gradient: call loss.backward() before meta.step(loss)"
            )
        if any(p.grad.is_sparse for p in self.parameters):
            raise TypeError(
                "gradients must be dense for meta-training, got a sparse one: pass sparse=False to its layer"
            )
        old = _clone_all(self.parameters)
        for group, ratio in groups:
            set_lr(group, MEASURING_LR * ratio)
        try:
            take()
        finally:  # even after an error, nobody else must step at the measuring LR
            for group, ratio in groups:
                set_lr(group, alpha * ratio)
        self.change = list(torch._foreach_sub(self.parameters, old))
        self.alpha = alpha
        torch._foreach_add_(old, self.change, alpha=alpha / MEASURING_LR)
        _copy_all(self.parameters, old)

    @torch.no_grad()
    def move(self, alpha: float) -> None:
        """Put the weights at w_t - alpha d, for another alpha."""
        torch._foreach_add_(self.parameters, self.change, alpha=(alpha - self.alpha) / MEASURING_LR)
        self.alpha = alpha

    def slope(
        self,
        model: nn.Module,
        val_loss: Callable[[], Tensor],
        loss_scale: float = 1.0,
        group: Group = None,
        random: dict[str, Tensor] | None = None,
    ) -> tuple[float, float]:
        """L_val at the current weights, and d L_val / d alpha there, both averaged over the ranks.

        Afterwards gradients, buffers, random state and train/eval modes are as before. `random`: see `no_trace`.
        """
        dots: list[Tensor] = []
        changes = {id(p): change for p, change in zip(self.parameters, self.change, strict=True)}
        sharded = any(isinstance(p, DTensor) for p in self.parameters)
        large = sum(p.numel() for p in self.parameters) / 100

        def consume(parameter: Tensor) -> None:  # use a large gradient at once, to free its memory
            if parameter.grad is not None:
                dots.append(_dot([parameter.grad], [changes[id(parameter)]]))
                parameter.grad = None

        with ExitStack() as stack:
            stack.enter_context(no_trace(model, self.all_parameters, random))
            for parameter in self.parameters:
                if parameter.requires_grad and parameter.numel() > large and not sharded:
                    stack.callback(parameter.register_post_accumulate_grad_hook(consume).remove)
            stack.enter_context(model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext())
            loss = val_loss()
            _check_val_loss(loss)
            loss = loss.reshape(())
            (loss_scale * loss).backward()
            for device in {p.device for p in self.parameters}:
                rest = [p for p in self.parameters if p.device == device and p.grad is not None]
                if rest:
                    dots.append(_dot([p.grad for p in rest], [changes[id(p)] for p in rest]))
        total = (
            torch.stack([dot.to(loss.device) for dot in dots]).double().sum() if dots else 0.0 * loss.detach().double()
        )
        value, slope = _over_ranks(loss.detach().double(), total, group, sharded)
        return value, slope / (MEASURING_LR * loss_scale)

    def slope_of(
        self, loss: Tensor, gradients: Sequence[Tensor | None], model: nn.Module, group: Group = None
    ) -> tuple[float, float]:
        """The same, from a loss and gradients that the user computed, in the order of `model.parameters()`."""
        own = list(model.parameters())
        if len(own) != len(gradients):
            raise ValueError(
                f"val_gradients() must return one gradient or None for each of the model's {len(own)} parameters, got "
                f"{len(gradients)}"
            )
        found = {id(p): v for p, v in zip(own, gradients, strict=True) if v is not None}
        pairs = [
            (found[id(p)], change) for p, change in zip(self.parameters, self.change, strict=True) if id(p) in found
        ]
        value = loss.detach().reshape(()).double()
        dot = _dot([v for v, _ in pairs], [change for _, change in pairs]).double() if pairs else 0.0 * value
        sharded = any(isinstance(p, DTensor) for p in self.parameters)
        mean_loss, slope = _over_ranks(value, dot, group, sharded)
        return mean_loss, slope / MEASURING_LR


@contextmanager
def no_trace(model: nn.Module, parameters: list[Any], random: dict[str, Tensor] | None = None) -> Iterator[None]:
    """Restore gradients, buffers, random state and train/eval modes at the end.

    Inside, random numbers continue from the states in `random` (by device), which are updated. Otherwise every pass would
    draw the same numbers whenever the training itself draws none.
    """
    modules = list(model.modules())
    own = [p for module in modules for p in module.parameters(recurse=False)]
    everything = list({id(p): p for p in (*own, *parameters)}.values())
    gradients = [parameter.grad for parameter in everything]
    places = [
        (module, name, buffer)
        for module in modules
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False)
    ]
    buffers = [buffer for _, _, buffer in places]
    before, versions = _clone_all(buffers), [buffer._version for buffer in buffers]
    modes = [(module, module.training) for module in modules]
    devices = {p.device for p in everything if p.is_cuda}
    for parameter in everything:
        parameter.grad = None
    try:
        with _random_numbers(sorted(device.index for device in devices), {} if random is None else random):
            yield
    finally:
        for parameter, gradient in zip(everything, gradients, strict=True):
            parameter.grad = gradient
        changed = [i for i, b in enumerate(buffers) if _is_ordinary(b) or b._version != versions[i]]
        with torch.no_grad():
            _copy_all([buffers[i] for i in changed], [before[i] for i in changed])
        for module, name, buffer in places:  # a module may have assigned a new tensor, or deleted it
            module._buffers[name] = buffer
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


def _is_ordinary(tensor: Tensor) -> bool:
    """Whether the `_foreach` operations support this tensor."""
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64)
    return tensor.layout == torch.strided and tensor.dtype in known and 0 not in tensor.stride()


def _clone_all(tensors: list[Any]) -> list[Any]:
    """Copy tensors, with a few kernels for all of one dtype."""
    copies = {id(tensor): tensor.detach().clone() for tensor in tensors if not _is_ordinary(tensor)}
    for dtype in {tensor.dtype for tensor in tensors}:
        alike = [tensor for tensor in tensors if tensor.dtype == dtype and id(tensor) not in copies]
        if alike:
            made = torch._foreach_add([tensor.detach() for tensor in alike], 0)
            copies.update(zip(map(id, alike), made, strict=True))
    return [copies[id(tensor)] for tensor in tensors]


def _copy_all(targets: list[Any], sources: list[Any]) -> None:
    """Copy many tensors at once. Sharded ones have no such operation and are copied one by one."""
    if targets and not any(isinstance(target, DTensor) for target in targets):
        torch._foreach_copy_(targets, sources)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


def _dot(gradients: list[Any], changes: list[Any]) -> Tensor:
    """<v, change> over some parameters, or over this rank's shards of them."""
    local = [[t.to_local() if isinstance(t, DTensor) else t for t in tensors] for tensors in (gradients, changes)]
    v, change = (
        torch.cat([t.detach().reshape(-1) for t in tensors]) if len(tensors) > 1 else tensors[0].reshape(-1)
        for tensors in local
    )
    with torch.autocast(v.device.type, enabled=False):
        return torch.dot(v, change)


def _over_ranks(loss: Tensor, dot: Tensor, group: Group, sharded: bool) -> tuple[float, float]:
    """Means over the ranks. With shards of an averaged gradient, the dot products add up instead."""
    loss_sum, dot_sum = sum_over_ranks(torch.stack((loss.to(dot), dot)), group).tolist()
    ranks = num_ranks(group)
    return loss_sum / ranks, dot_sum if sharded else dot_sum / ranks


def _check_val_loss(loss: Any) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        found = (
            f"shape {tuple(loss.shape)}, requires_grad={loss.requires_grad}" if isinstance(loss, Tensor) else repr(loss)
        )
        raise ValueError(
            f"val_loss() must return a scalar tensor with a gradient, got {found}: return the mean loss of a batch"
        )
