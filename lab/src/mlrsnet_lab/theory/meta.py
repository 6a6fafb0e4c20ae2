"""Theorem 3 in practice: the norm of the meta-gradient along Algorithm 1, beside the bound from its measured constants.

Step t of a run, with the network's weights phi and the envelope alpha_0 b^t, the largest LR Eq. 14 allows:

    F_t(phi) = f(w_t - alpha_0 b^t p(f(w_t), state_t; phi) v_t)       the validation loss after the virtual step
    phi_{t+1} = Adam(phi_t, grad F_t(phi_t))                          (Eq. 10)
    w_{t+1} = w_t - alpha_0 b^t p(f(w_t), state_t; phi_{t+1}) v_t     (Eq. 12)

Validation uses f itself, so the meta-gradient is exact given v_t: the theorem's validation noise is 0 here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from mlrsnet.nets import ScheduleNet
from mlrsnet.ops import DEVICE
from mlrsnet_lab import checks
from mlrsnet_lab.theory.bounds import Decay, MetaAdam, initial_lr
from mlrsnet_lab.theory.problems import Noise, Problem

Moments = tuple[dict[str, Tensor], dict[str, Tensor]]


@dataclass(frozen=True)
class MetaTrack:
    """What `track_meta_gradient` saw: tensors (runs, T), and constants measured as maxima over all runs and steps.

    squared_norms: ||grad F_t(phi_t)||^2. meta_decrease: F_t(phi_t) - F_t(phi_{t+1}). val_losses: F_t(phi_t).
    lrs: alpha_0 b^t p with phi_t. gradient_bound: rho, of grad f(w_t), grad f(w_hat_t) and v_t. meta_gradient_bound: G, of the
    entries of grad F_t. meta_smoothness: the curvature of F_t along Adam's steps, a lower estimate of L_A.
    """

    adam: MetaAdam
    smoothness: float
    squared_norms: Tensor
    meta_decrease: Tensor
    val_losses: Tensor
    lrs: Tensor
    gradient_bound: float
    meta_gradient_bound: float
    meta_smoothness: float

    @property
    def running_minimum(self) -> Tensor:
        """min_{s<=t} E||grad F_s(phi_s)||^2 for t = 1..T, the left side of Theorem 3."""
        return self.squared_norms.mean(0).cummin(0).values

    @property
    def meets_assumptions(self) -> bool:
        """Whether eta, beta1, beta2 and epsilon meet the theorem's conditions, for the measured constants."""
        return self.adam.meets_theorem3(
            meta_smoothness=self.meta_smoothness, meta_gradient_bound=self.meta_gradient_bound
        )

    @property
    def sure_decrease(self) -> Tensor:
        """eta ||grad F_t||^2 / (2 (sqrt(beta2) G + epsilon)): the proof's lower bound of `meta_decrease`, step by step."""
        return self.squared_norms * self.adam.lr / (2 * self._widest())

    @property
    def bound(self) -> Tensor:
        """The bound after t steps with the LRs measured instead of bounded, mean over the runs, for t = 1..T.

        2 (sqrt(beta2) G + epsilon) / (t eta) {F_1(phi_1) + sum_{s=2}^t rho^2 (alpha_s + L alpha_s^2 / 2)}
        """
        rise = self.gradient_bound**2 * (self.lrs + self.smoothness * self.lrs**2 / 2)
        rise = torch.cat((self.val_losses[:, :1], rise[:, 1:]), dim=1).mean(0).cumsum(0)
        return 2 * self._widest() / self.adam.lr * rise / torch.arange(1, len(rise) + 1)

    def _widest(self) -> float:
        return sqrt(self.adam.beta2) * self.meta_gradient_bound + self.adam.epsilon


def track_meta_gradient(
    net: ScheduleNet,
    problem: Problem,
    decay: Decay,
    noise: Noise,
    adam: MetaAdam,
    *,
    c: float = 2.0,
    start: float = 1.0,
    runs: int = 8,
    seed: int = 0,
) -> MetaTrack:
    """Algorithm 1 with an update of phi at every step, `runs` times at once from the same weights, in float64.

    The network reads the loss unscaled, and is itself left as it is.
    """
    checks.whole_number("runs", runs)
    if net.loss_scale != "none":
        raise ValueError(f"net must have loss_scale='none', got {net.loss_scale!r}: build it without a loss scale")
    envelope = decay.lrs(initial_lr(noise, smoothness=problem.smoothness, c=c), position=1.0)
    generator = torch.Generator().manual_seed(seed)
    w = torch.full((runs, len(problem.eigenvalues)), checks.real("start", start), dtype=torch.float64)
    state = net.initial_state(runs).double()
    phi = {name: weight.detach().double().expand(runs, *weight.shape) for name, weight in net.named_parameters()}
    moments = (dict.fromkeys(phi, torch.zeros(())), dict.fromkeys(phi, torch.zeros(())))
    seen: list[tuple[Tensor, ...]] = []
    for t, largest_lr in enumerate(envelope.tolist()):
        virtual_step = _virtual_step(net, problem, t / decay.T, largest_lr)
        gradient = problem.gradient(w)
        v = noise.around(gradient, generator)
        g, (F, (w_hat, alpha, _)) = virtual_step(phi, w, v, state)
        new, moments = _adam_step(adam, phi, g, moments)
        g_new, (F_new, (w, _, state)) = virtual_step(new, w, v, state)
        flat, move = _flat(g), _flat(new) - _flat(phi)
        bend = ((_flat(g_new) - flat) * move).sum(1) / move.square().sum(1)
        norms = torch.stack([x.norm(dim=1) for x in (gradient, problem.gradient(w_hat), v)]).amax(0)
        seen.append((flat.square().sum(1), F - F_new, F, alpha, norms, flat.abs().amax(1), bend))
        phi = new
    squared_norms, decrease, val_losses, lrs, norms, entries, bend = (
        torch.stack(x, 1) for x in zip(*seen, strict=True)
    )
    return MetaTrack(
        adam=adam,
        smoothness=problem.smoothness,
        squared_norms=squared_norms,
        meta_decrease=decrease,
        val_losses=val_losses,
        lrs=lrs,
        gradient_bound=float(norms.max()),
        meta_gradient_bound=float(entries.max()),
        meta_smoothness=float(bend.nan_to_num(0.0).clamp(min=0.0).max()),  # 0 / 0 where Adam did not move
    )


def _virtual_step(net: ScheduleNet, problem: Problem, progress: float, largest_lr: float) -> Callable[..., Any]:
    """phi, w, v, state -> grad F(phi), (F(phi), (w_hat, LR, next state)), for every run at once."""

    def val_loss(phi: dict[str, Tensor], w: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        p, state = net.predict(phi, problem.loss(w), progress, state, DEVICE)
        w_hat = w - largest_lr * p * v
        return problem.loss(w_hat), (w_hat, largest_lr * p, state)

    return torch.vmap(torch.func.grad_and_value(val_loss, has_aux=True))


def _adam_step(
    adam: MetaAdam, phi: dict[str, Tensor], g: dict[str, Tensor], moments: Moments
) -> tuple[dict[str, Tensor], Moments]:
    """Algorithm (algadam), as `MetaAdam` shows it."""
    m = {name: adam.beta1 * moments[0][name] + (1 - adam.beta1) * g[name] for name in phi}
    v = {name: adam.beta2 * moments[1][name] + (1 - adam.beta2) * g[name] ** 2 for name in phi}
    return {name: phi[name] - adam.lr * m[name] / (v[name].sqrt() + adam.epsilon) for name in phi}, (m, v)


def _flat(tensors: dict[str, Tensor]) -> Tensor:
    """(runs, all entries)."""
    return torch.cat([tensor.flatten(1) for tensor in tensors.values()], dim=1)
