"""Provisional step, hypergradient, rescaled step: the mathematics of Algorithm 1, for the user's own optimizer.

For every optimizer in `LINEAR` the weights move on a straight line in the LR, w(alpha) = w_t - alpha d: the optimizer's
state (momentum, second moments) does not depend on alpha. So one real optimizer step fixes d, and

    d L_val(w(alpha)) / d alpha = -<grad L_val(w(alpha)), d>

needs one validation gradient and one dot product: no functional model, no copied optimizer, no second-order graph. Any
other LR on the line is a rescaling. alpha is the LR of the first group whose LR is not 0; the others keep their ratio.
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
"""Optimizers whose step is linear in the LR and whose state does not depend on it, by exact type."""

MEASURING_LR = 2.0**12
"""d is read off a step this long: at a small LR, w_new - w_old would keep few of d's digits. A power of two scales exactly."""


def check_linear(optimizer: Optimizer, assume_linear: bool) -> None:
    """Refuse optimizers that are not known to be linear in their LR, and weights too coarse for it."""
    if not assume_linear and type(optimizer) not in LINEAR:
        known = ", ".join(sorted(kind.__name__ for kind in LINEAR))
        raise TypeError(
            f"optimizer must take steps that are linear in its LR, and {type(optimizer).__name__} is not known to (its step "
            f"sizes, averages or line searches may depend on the LR in other ways): use one of {known}, or pass "
            "assume_linear=True if you know that w_new = w_old - lr * d with d and the optimizer's state independent of lr"
        )
    check_dtypes(optimizer)


def check_dtypes(optimizer: Optimizer) -> None:
    """Refuse weights that are too coarse to read a step from."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"the optimizer's parameters must be float32 or float64, got {parameter.dtype}: the step is read off the "
                    "weights; keep them in float32 and use autocast"
                )


class OpenStep:
    """One optimizer step held open: taken once, its length still free. The weights stand at w_t - alpha d.

    Costs one copy of the weights: the change at `MEASURING_LR`, in which all lengths are multiples.

    Args:
        optimizer: with gradients in place.
        take: takes the step, `optimizer.step` or a GradScaler's.
        ratios: the groups' LRs relative to alpha.
        alpha: where to put the weights first.
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
        finally:  # whatever happens, nobody else steps at the measuring LR
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
        """L_val at the weights as they are, and d L_val / d alpha there; both the mean over the ranks.

        The pass leaves no trace: gradients, buffers, random state and train/eval modes are as before. `random`: see `no_trace`.
        """
        dots: list[Tensor] = []
        changes = {id(p): change for p, change in zip(self.parameters, self.change, strict=True)}
        sharded = any(isinstance(p, DTensor) for p in self.parameters)
        large = sum(p.numel() for p in self.parameters) / 100

        def consume(parameter: Tensor) -> None:  # a large gradient is used as soon as it is there, and never kept
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
        """The same from a loss and gradients that were computed elsewhere, in the order of `model.parameters()`."""
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
    """Put gradients, buffers, random state and train/eval modes back at the end.

    Inside, random numbers go on from `random`, by device, which is updated: without, they would be the same ones every time
    that nobody outside draws any.
    """
    modules = list(model.modules())
    own = [p for module in modules for p in module._parameters.values() if p is not None]
    everything = list({id(p): p for p in (*own, *parameters)}.values())
    gradients = [parameter.grad for parameter in everything]
    places = [(module, name, b) for module in modules for name, b in module._buffers.items() if b is not None]
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
        for module, name, buffer in places:  # some modules assign a new tensor
            module._buffers[name] = buffer
        for module, training in modes:
            module.training = training


@contextmanager
def _random_numbers(devices: list[int], states: dict[str, Tensor]) -> Iterator[None]:
    """A random state of its own for what is inside: that of the devices in `states`, the present one where there is none."""
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
    """Whether the operations over many tensors know its kind."""
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64)
    return tensor.layout == torch.strided and tensor.dtype in known and 0 not in tensor.stride()


def _clone_all(tensors: list[Any]) -> list[Any]:
    """Copies, a few kernels for all of one kind."""
    copies = {id(tensor): tensor.detach().clone() for tensor in tensors if not _is_ordinary(tensor)}
    for dtype in {tensor.dtype for tensor in tensors}:
        alike = [tensor for tensor in tensors if tensor.dtype == dtype and id(tensor) not in copies]
        if alike:
            made = torch._foreach_add([tensor.detach() for tensor in alike], 0)
            copies.update(zip(map(id, alike), made, strict=True))
    return [copies[id(tensor)] for tensor in tensors]


def _copy_all(targets: list[Any], sources: list[Any]) -> None:
    """Copy many tensors at once; sharded ones, which know no such operation, one by one."""
    if targets and not any(isinstance(target, DTensor) for target in targets):
        torch._foreach_copy_(targets, sources)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


def _dot(gradients: list[Any], changes: list[Any]) -> Tensor:
    """<v, change> over some parameters; of this rank's shards where they are sharded."""
    local = [[t.to_local() if isinstance(t, DTensor) else t for t in tensors] for tensors in (gradients, changes)]
    v, change = (
        torch.cat([t.detach().reshape(-1) for t in tensors]) if len(tensors) > 1 else tensors[0].reshape(-1)
        for tensors in local
    )
    with torch.autocast(v.device.type, enabled=False):
        return torch.dot(v, change)


def _over_ranks(loss: Tensor, dot: Tensor, group: Group, sharded: bool) -> tuple[float, float]:
    """Means over the ranks; the shards of an averaged gradient add up instead."""
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
