"""RTHO (Franceschi, Donini, Frasconi, Pontil: Forward and Reverse Gradient-Based Hyperparameter Optimization, ICML 2017).

Real-time hyperparameter optimisation of the LR. Along with the weights it carries their derivative with respect to the LR
alpha through the whole training so far, as if alpha had been constant. For SGD with momentum in torch's form, with the
gradient g_t of the training loss and its Hessian H_t at w_{t-1}, both with weight decay:

    v_t = mu v_{t-1} + g_t                            w_t = w_{t-1} - alpha v_t

    Y_t = d v_t / d alpha = mu Y_{t-1} + H_t Z_{t-1}
    Z_t = d w_t / d alpha = Z_{t-1} - v_t - alpha Y_t

This is their recursion Z_t = A_t Z_{t-1} + B_t for the state (v, w); for plain SGD, A_t = I - alpha H_t and B_t = -g_t. With
the validation loss E and beta for `hyper_lr`, before each step:

    alpha <- max(0, alpha - beta grad E(w_t) . Z_t)

H Z is a backward pass through the backward pass; no Hessian is computed.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from mlrsnet_lab import checks
from mlrsnet_lab.baselines.base import (
    Baseline,
    Rule,
    Tensors,
    check_dense,
    check_number,
    dot,
    lr,
    lr_of,
    recall,
    remember,
    with_decay,
)

Closure = Callable[[], Tensor]


def _norm_or_none(name: str, value: Any) -> float | None:
    return None if value is None else checks.positive(name, value, "pass None for no clipping")


class RTHO(Baseline):
    """SGD, with or without momentum, whose LR follows the gradient of the validation loss E.

        alpha <- max(0, alpha - beta grad E(w) . Z)

        v <- mu v + g          w <- w - alpha v              g, H: gradient and Hessian of the training loss
        Y <- mu Y + H Z        Z <- Z - v - alpha Y          Y = dv / d alpha,  Z = dw / d alpha

    `step(train_closure, val_closure)` does a whole training step. Both closures return a loss with its graph and do not call
    backward(). Buffers that the validation pass changes, such as batch-norm statistics, are restored. In the first step Z is
    0, and only `train_closure` is called.

    Args:
        params: parameters.
        lr: the initial alpha.
        hyper_lr: beta. The MLR-SNet paper searches 1e-3 to 1e-7 for pictures and 1 to 0.05 for text. 0 is plain SGD.
        momentum: mu.
        weight_decay: the weights times this are added to the gradient.
        clip_norm: largest norm of the gradient, before weight decay; None for no clipping.

    >>> w = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = RTHO([w], lr=0.1, hyper_lr=0.01)
    >>> for _ in range(2):
    ...     _ = optimizer.step(lambda: (w**2).sum(), lambda: (w**2).sum())
    >>> round(optimizer.param_groups[0]["lr"], 4)  # 0.1 + 0.01 * (2 * 0.8) * 2, because Z is -2 after the first step
    0.132
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "lr": lr,
        "hyper_lr": checks.not_negative,
        "momentum": checks.below_one,
        "weight_decay": checks.not_negative,
        "clip_norm": _norm_or_none,
    }

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        hyper_lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
    ) -> None:
        super().__init__(
            params, lr=lr, hyper_lr=hyper_lr, momentum=momentum, weight_decay=weight_decay, clip_norm=clip_norm
        )

    def hypergradient(self, val_closure: Closure) -> float:
        """dE / d alpha through the whole training so far, at the current weights: grad E(w_t) . Z_t."""
        parameters = [p for p in self._trained() if "sensitivity" in self.state.get(p, {})]
        if not parameters:
            return 0.0
        found = self._val_gradients(val_closure, parameters)
        return dot((g, self.state[p]["sensitivity"]) for p, g in zip(parameters, found, strict=True) if g is not None)

    def step(self, train_closure: Closure, val_closure: Closure) -> Tensor:  # type: ignore[override]
        """Adapt the LR, then take a step. Returns the training loss, detached."""
        for name, closure in (("train_closure", train_closure), ("val_closure", val_closure)):
            if not callable(closure):
                raise TypeError(f"{name} must be a function that returns a loss with its graph, got {closure!r}")
        group = self.group
        alpha, slope = lr_of(group), None
        if any("sensitivity" in state for state in self.state.values()):
            slope = self.hypergradient(val_closure)
            alpha = max(0.0, alpha - group["hyper_lr"] * slope) if math.isfinite(slope) else alpha
        loss, parameters, gradients, curved = self._derivatives(train_closure)
        if group["clip_norm"] is not None:
            gradients, curved = clipped(gradients, curved, group["clip_norm"])
        if not math.isfinite(float(loss)) or not math.isfinite(dot((g, g) for g in gradients)):
            self._skip("a training loss or its gradient")
            return loss
        if slope is not None and not math.isfinite(slope):
            self._forget()
            curved = [torch.zeros_like(g) for g in gradients]
        group["lr"], group["hypergradient"] = alpha, slope
        if parameters:
            self._move(parameters, gradients, curved)
        return loss

    @torch.no_grad()
    def _move(self, w: Tensors, gradients: Tensors, curved: Tensors) -> None:
        """Advance v, Y, Z and w by one step. `curved` is H Z."""
        mu, wd, alpha = (self.group[name] for name in ("momentum", "weight_decay", "lr"))
        states = [self.state[p] for p in w]
        Z: Tensors = recall(states, "sensitivity", w)
        v, Y = with_decay(w, gradients, wd), with_decay(Z, curved, wd)
        if mu:
            v = torch._foreach_add(v, recall(states, "momentum", v), alpha=mu)
            Y = torch._foreach_add(Y, recall(states, "momentum_sensitivity", Y), alpha=mu)
            remember(states, "momentum", v)
            remember(states, "momentum_sensitivity", Y)
        torch._foreach_sub_(Z, v)  # in place, because a captured CUDA graph reads this memory
        torch._foreach_sub_(Z, Y, alpha=alpha)
        remember(states, "sensitivity", Z)
        torch._foreach_sub_(w, v, alpha=alpha)

    def _val_gradients(self, closure: Closure, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Gradients of the validation loss. Does not wait for the device, so that a CUDA graph can capture it."""
        with torch.enable_grad(), buffers_put_back():
            return torch.autograd.grad(_with_graph("val_closure", closure()), parameters, allow_unused=True)

    def _derivatives(self, closure: Closure) -> tuple[Tensor, list[Tensor], Tensors, Tensors]:
        """See `derivatives`; the direction is Z."""
        trained = self._trained()
        Z = {p: self.state[p]["sensitivity"] for p in trained if "sensitivity" in self.state.get(p, {})}
        return derivatives(closure, trained, Z)

    def _trained(self) -> list[Tensor]:
        return [p for p in self.group["params"] if p.requires_grad]

    def _forget(self) -> None:
        """Reset Y and Z to 0, in place: in an unstable training they grow without bound."""
        for state in self.state.values():
            for name in ("sensitivity", "momentum_sensitivity"):
                if name in state:
                    state[name].zero_()
        if not self._has_warned:
            self._has_warned = True
            checks.warn(
                "the derivative of the validation loss with respect to the LR was not finite: RTHO kept the LR and restarts the "
                "derivative from 0; it warns only once"
            )


def derivatives(
    closure: Closure, parameters: Sequence[Tensor], direction: Mapping[Tensor, Tensor]
) -> tuple[Tensor, list[Tensor], Tensors, Tensors]:
    """The training loss, those of the parameters that it depends on, its gradients, and H Z. Does not wait for the device.

    H Z = grad <g, Z>, because H is symmetric: a backward pass from g, weighted by the direction Z. Without an entry, Z is 0.
    """
    with torch.enable_grad(), twice_differentiable():
        loss = _with_graph("train_closure", closure())
        found = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        pairs = [(p, g) for p, g in zip(parameters, found, strict=True) if g is not None]
        w, graph = [p for p, _ in pairs], [g for _, g in pairs]
        check_dense(graph)
        moved = [  # a list of pairs: parameters that enter as a sum share one gradient tensor
            (g, direction[p]) for p, g in pairs if g.requires_grad and p in direction
        ]
        second: Sequence[Tensor | None] = [None] * len(w)
        if moved:
            second = torch.autograd.grad([g for g, _ in moved], w, [z for _, z in moved], allow_unused=True)
        curved = [torch.zeros_like(p) if hz is None else hz for p, hz in zip(w, second, strict=True)]
    return loss.detach(), w, [g.detach() for g in graph], curved


@torch.no_grad()
def clipped(gradients: Tensors, curved: Tensors, clip_norm: float) -> tuple[Tensors, Tensors]:
    """The clipped gradient c(g), and its derivative along Z; `curved` is H Z.

        c(g) = s g,   s = min(1, clip_norm / (|g| + 1e-6))
        Dc   = s H Z - g clip_norm (g . H Z) / (|g| (|g| + 1e-6)^2)        (the second term only if s < 1)

    The 1e-6 is that of torch's `clip_grad_norm_`.
    """
    norm = math.sqrt(dot((g, g) for g in gradients))
    if not clip_norm < norm + 1e-6 < math.inf:
        return gradients, curved
    scale = clip_norm / (norm + 1e-6)
    along = scale / (norm + 1e-6) / norm * dot(zip(gradients, curved, strict=True))
    return (
        torch._foreach_mul(gradients, scale),
        torch._foreach_sub(torch._foreach_mul(curved, scale), gradients, alpha=along),
    )


@contextmanager
def buffers_put_back() -> Iterator[None]:
    """Restore the buffers of all modules that are called in here, such as batch-norm statistics."""
    kept: dict[tuple[int, str], tuple[nn.Module, str, Tensor, Tensor]] = {}

    def keep(module: nn.Module, inputs: Any) -> None:
        for name, buffer in module._buffers.items():
            if buffer is not None and (id(module), name) not in kept:
                kept[id(module), name] = module, name, buffer, buffer.detach().clone()

    handle = register_module_forward_pre_hook(keep)
    try:
        yield
    finally:
        handle.remove()
        with torch.no_grad():
            for module, name, buffer, value in kept.values():
                buffer.copy_(value)
                module._buffers[name] = buffer  # a module may have assigned a new tensor


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Use kernels with a second derivative in here: fused attention and cuDNN's LSTMs and GRUs have none."""
    with ExitStack() as whole:
        whole.enter_context(sdpa_kernel(SDPBackend.MATH))
        recurrent = whole.enter_context(
            ExitStack()
        )  # entered only inside such a layer, so that convolutions keep cuDNN

        def before(module: nn.Module, inputs: Any) -> None:
            if isinstance(module, nn.RNNBase):
                recurrent.enter_context(torch.backends.cudnn.flags(enabled=False))

        def after(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(module, nn.RNNBase):
                recurrent.close()

        whole.callback(register_module_forward_pre_hook(before).remove)
        whole.callback(register_module_forward_hook(after).remove)
        yield


def _with_graph(name: str, loss: Any) -> Tensor:
    check_number(f"what {name} returns", loss)
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise ValueError(f"{name} must return a loss with its graph, got {loss!r}: do not detach it or call item()")
    return loss.reshape(())
