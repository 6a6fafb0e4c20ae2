"""`MetaTrainer`: the paper's meta-training (Section 3.2.2, Algorithm 1) around `lookahead.py`.

At t % T_val = 0, with f_t the training loss and theta_t the memory of the network A:

    phi_{t+1} = phi_t - Adam(grad_phi L_val(w_t - A(f_t, theta_t; phi_t) d_t))      (Eq. 9)
    w_{t+1}   = w_t - A(f_t, theta_t; phi_{t+1}) d_t                                (Eq. 10)

d_t is the user's optimizer's direction. Between updates phi is fixed and a step is `LearnedLR`'s.
"""

import copy
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from mlrsnet import _check
from mlrsnet._engine.contract import Moment
from mlrsnet._engine.ranks import Group, share_from_first
from mlrsnet._engine.state import schedule_number
from mlrsnet._lookahead import OpenStep, check_dtypes, check_linear
from mlrsnet.card import Card
from mlrsnet.gamma import Gamma
from mlrsnet.nets import LSTMNet, ScheduleNet, predict
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

COMPAT = {
    "layout": "the default network is the authors' meta-train one: gates i, f, o, g, sigmoid(f - 1), half-width layers",
    "every": "T_val is 300 unless given",
    "epoch-period": "T_val is counted anew in every epoch, and its last step updates, not its first (pass steps_per_epoch)",
    "advance-twice": "at a meta-update the memory advances twice: for the look-ahead, and again for the step",
    "phases": "networks are kept after 1/200, 1/2 and all of training (their epochs 1, 100 and 200)",
    "phase-gamma": "the schedule's card asks for gamma to be computed again at every phase",
}
"""Where the authors' code departs from the paper in ways that change numbers; for comparisons only."""

MetaOptimizer = Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer]


class Past(NamedTuple):
    """A step to back-propagate through: its loss, its progress, and the memory before it."""

    loss: float | Tensor
    progress: float | Tensor
    memory: Tensor


class MetaTrainer:
    """Trains a model and, on the side, the network that sets its LR. `meta.step(loss)` stands for `optimizer.step()`.

    Args:
        model: the model in training; for its buffers, modes and, under DDP, its `no_sync`.
        optimizer: its optimizer, linear in the LR (see `lookahead.LINEAR`).
        total_steps: T, optimizer steps of the whole training.
        val_loss: computes the mean loss of the next validation batch under the weights as they are. It has a global random
            state of its own, which goes on from call to call and begins as the training's is at the first one.
        val_gradients: instead of `val_loss`, for those who compute gradients themselves (in a CUDA graph, say): returns the
            loss and its gradients, unscaled, in the order of `model.parameters()`, None where there is none. Buffers
            and `.grad` are its own business: nothing is put back after it.
        net: the schedule network, trained in place; the paper's `LSTMNet()` if None.
        num_classes: for the range of the LR; see `LearnedLR`.
        every: T_val, steps between meta-updates; 100 if None.
        meta_optimizer: for the network's weights, or what makes one from them; Adam(1e-3, weight decay 1e-4) if None.
        scaler: a `torch.amp.GradScaler`: it takes the steps, and its scale also covers the validation pass.
        num_phases: k, networks kept for the schedule, after ceil(T l / k) steps.
        bptt: steps to back-propagate through the network's memory; 1 in the paper.
        gamma: how the range is found.
        initial_loss, scale, min_lr, max_lr, process_group: see `LearnedLR`.
        compat: "official", or names out of `COMPAT`.
        steps_per_epoch: for compat's "epoch-period".
        assume_linear: accept an optimizer that is not in `lookahead.LINEAR`.
        name, learned_on: for the schedule's card.

    >>> import torch, mlrsnet
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x, y = torch.randn(24, 8, 4), torch.randint(3, (24, 8))  # 20 batches to train on, 4 to validate
    >>> def batch_loss(i):
    ...     return torch.nn.functional.cross_entropy(model(x[i]), y[i])
    >>> val = iter(range(20, 24))
    >>> meta = mlrsnet.MetaTrainer(
    ...     model, optimizer, total_steps=20, val_loss=lambda: batch_loss(next(val)), num_classes=3, every=5
    ... )
    >>> for i in range(20):
    ...     loss = batch_loss(i)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     meta.step(loss)
    >>> meta.num_updates, meta.schedule().num_phases
    (4, 3)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        total_steps: int,
        val_loss: Callable[[], Tensor] | None = None,
        val_gradients: Callable[[], tuple[Tensor, Sequence[Tensor | None]]] | None = None,
        net: ScheduleNet | None = None,
        num_classes: int | None = None,
        every: int | None = None,
        meta_optimizer: MetaOptimizer | None = None,
        scaler: torch.amp.GradScaler | None = None,
        num_phases: int = 3,
        bptt: int = 1,
        gamma: Gamma | None = None,
        initial_loss: float | None = None,
        scale: float = 1.0,
        min_lr: float = 0.0,
        max_lr: float | None = None,
        process_group: Group = None,
        compat: str | Collection[str] = (),
        steps_per_epoch: int | None = None,
        assume_linear: bool = False,
        name: str = "unnamed",
        learned_on: str = "",
    ) -> None:
        _check_kinds(model, optimizer, val_loss, val_gradients, net, scaler, gamma)
        check_linear(optimizer, assume_linear)
        self.compat = _names(compat)
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.val_loss, self.val_gradients = val_loss, val_gradients
        self.every = _check.whole_number("every", (300 if "every" in self.compat else 100) if every is None else every)
        self.num_phases = _check.whole_number("num_phases", num_phases)
        self.bptt = _check.whole_number("bptt", bptt)
        self.steps_per_epoch = steps_per_epoch
        if steps_per_epoch is not None or "epoch-period" in self.compat:
            hint = "compat's epoch-period counts T_val in epochs"
            self.steps_per_epoch = _check.whole_number("steps_per_epoch", steps_per_epoch, hint=hint)
            if "epoch-period" in self.compat and self.every > self.steps_per_epoch:
                raise ValueError(
                    f"every must be at most steps_per_epoch with compat's epoch-period, got {self.every} and {steps_per_epoch}: "
                    "no step would update; pass a smaller T_val"
                )
        default = "official-train" if "layout" in self.compat else "paper"
        self.net = LSTMNet(layout=default) if net is None else net
        if next(self.net.parameters()).dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"net must be float32 or float64, got {next(self.net.parameters()).dtype}: call net.float()"
            )
        self._card = Card(name=name, learned_on=learned_on, gamma=gamma or Gamma())
        self.lr = LearnedLR(
            optimizer,
            Schedule(self.net, self._card),
            total_steps=total_steps,
            num_classes=num_classes,
            initial_loss=initial_loss,
            scale=scale,
            min_lr=min_lr,
            max_lr=max_lr,
            process_group=process_group,
        )
        self.engine = self.lr.engine
        self.net.cpu().requires_grad_(True)  # so small that a GPU's launches would cost more than its arithmetic
        for parameter in self.net.parameters():  # all ranks begin with the first one's network
            share_from_first(parameter, self.lr.process_group)
        self.engine.backend.set_weights([self.net])
        self.meta_optimizer = _meta_optimizer(meta_optimizer, self.net)
        self.step_count = self.num_updates = self.skipped_updates = 0
        self.last_hypergradient: float | None = None
        self.last_provisional_lr: float | None = None
        self.last_val_loss: float | None = None
        self._loss_range = (math.inf, -math.inf)
        self._kept: dict[int, dict[str, Tensor]] = {}
        self._past: deque[Past] = deque(maxlen=self.bptt - 1)
        self._val_random: dict[str, Tensor] = {}

    @property
    def total_steps(self) -> int:
        """T."""
        return self.lr.total_steps

    def step(self, loss: float | Tensor | None = None) -> None:
        """Take the optimizer's step at the LR the network gives for this loss; every T_val-th also teaches the network."""
        loss = self.engine.losses.collect(loss)
        if loss is None:
            raise ValueError(
                "step needs this batch's loss, got None: pass it, or observe(loss) those of its micro-batches first"
            )
        self._check_alone()
        if self.update_due:
            self._meta_step(loss)
        else:
            self._plain_step(loss)
        self._count()

    @property
    def update_due(self) -> bool:
        """Whether the next step also teaches the network; it reads numbers on the host, so no CUDA graph can hold it."""
        step = self.step_count
        if "epoch-period" in self.compat and self.steps_per_epoch:
            step = step % self.steps_per_epoch + 1
        return step % self.every == 0

    def count_replayed(self) -> None:
        """Count a plain step that was captured in a CUDA graph and has been replayed: only the host does not know of it."""
        self._count()

    def observe(self, loss: float | Tensor) -> None:
        """Queue the loss of a micro-batch, undivided and without the AMP scale; the next `step` uses the mean."""
        self.lr.observe(loss)

    def schedule(self) -> Schedule:
        """What was learned so far: the networks kept at the phases' ends, the present one for those still to come."""
        phases = []
        for boundary in self._boundaries():
            net = copy.deepcopy(self.net)
            kept = [step for step in self._kept if step <= boundary]
            passed = boundary <= self.step_count and kept
            net.load_state_dict(self._kept[max(kept)] if passed else self.net.state_dict())
            phases.append(net)
        return Schedule(phases, self.card())

    def card(self) -> Card:
        """Where the schedule comes from."""
        gamma = self._card.gamma
        if "phase-gamma" in self.compat and gamma.policy == "initial":
            gamma = replace(gamma, policy="per-phase")
        low, high = self._loss_range
        departures = f", authors' departures: {', '.join(sorted(self.compat))}" if self.compat else ""
        return replace(
            self._card,
            description=f"Algorithm 1: T_val = {self.every}, {self.num_updates} meta-updates with "
            f"{type(self.meta_optimizer).__name__}, {self.step_count} of {self.total_steps} steps{departures}.",
            optimizer=_describe(self.optimizer),
            total_steps=self.total_steps,
            gamma=gamma,
            loss_range=(low, high) if low < high else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything but the model's and the optimizer's own state; `torch.load(weights_only=True)` reads it."""
        return {
            "lr": self.lr.state_dict(),
            "net": _copy(self.net.state_dict()),
            "meta_optimizer": copy.deepcopy(self.meta_optimizer.state_dict()),
            "counts": [self.step_count, self.num_updates, self.skipped_updates],
            "last": [self.last_hypergradient, self.last_provisional_lr, self.last_val_loss],
            "loss_range": list(self._loss_range),
            "kept": {step: _copy(state) for step, state in self._kept.items()},
            "past": [(float(past.loss), float(past.progress), past.memory.cpu()) for past in self._past],
            "val_random": _copy(self._val_random),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on exactly where the saved run stopped."""
        missing = {"lr", "net", "meta_optimizer", "counts", "last", "loss_range", "kept", "past"} - set(state_dict)
        if missing:
            raise ValueError(
                f"state_dict must be one saved by MetaTrainer.state_dict, got one without {sorted(missing)}"
            )
        self.net.load_state_dict(state_dict["net"])
        self.engine.backend.set_weights([self.net])
        # The state names the network that the saved run began with, which a new process cannot have.
        self.lr.load_state_dict({**state_dict["lr"], "schedule": schedule_number(self.lr.schedule)})
        self.meta_optimizer.load_state_dict(state_dict["meta_optimizer"])
        self.step_count, self.num_updates, self.skipped_updates = state_dict["counts"]
        self.last_hypergradient, self.last_provisional_lr, self.last_val_loss = state_dict["last"]
        self._loss_range = (state_dict["loss_range"][0], state_dict["loss_range"][1])
        self._kept = {step: _copy(state) for step, state in state_dict["kept"].items()}
        self._past = deque((Past(*past) for past in state_dict["past"]), maxlen=self.bptt - 1)
        saved = state_dict.get("val_random", {})  # the first states had none
        self._val_random = {device: state.detach().cpu().clone() for device, state in saved.items()}

    def _count(self) -> None:
        self.step_count += 1
        self.engine.check_end(self.step_count)
        if self.step_count in self._boundaries():
            self._kept[self.step_count] = _copy(self.net.state_dict())

    def _check_alone(self) -> None:
        """Tell once that somebody else steps the optimizer too. Steps before the first `step` are the user's own business."""
        steps = self.engine.optimizer_steps.too_many(1 if self.step_count else math.inf)
        if steps:
            _check.warn(
                f"the optimizer took {steps} steps since the last MetaTrainer.step(loss), which takes one itself: leave "
                "optimizer.step() out, or every batch moves the weights more than once"
            )

    def _boundaries(self) -> list[int]:
        """Steps after which a network is kept: ceil(T l / k)."""
        if "phases" in self.compat:
            return [math.ceil(self.total_steps / part) for part in (200, 2, 1)]
        return [-(-self.total_steps * part // self.num_phases) for part in range(1, self.num_phases + 1)]

    def _plain_step(self, loss: float | Tensor) -> None:
        self._remember(loss)
        self.engine.advance(loss)
        self._take()

    def _meta_step(self, loss: float | Tensor) -> None:
        value = float(loss)
        if not math.isfinite(value):
            self._skip("the training loss is not finite")
            self._plain_step(loss)
            return
        self.engine.follow_groups()
        check_dtypes(self.optimizer)  # of groups that were added, too
        moment = self.engine.backend.moment(value)
        alpha, after = self._alpha(value, moment)
        self.last_provisional_lr = alpha.item()
        scale = self._loss_scale()
        step = OpenStep(self.optimizer, self._take, self.engine.ratios, self.last_provisional_lr)
        if self._loss_scale() < scale:
            self._skip("the GradScaler skipped the step")  # which lowers its scale
        else:
            self._update_network(alpha, step)
        if "advance-twice" in self.compat:
            self.engine.backend.set_memory(after.detach())
        self._remember(loss)
        self.engine.advance(loss)
        step.move(self.engine.backend.alpha())
        self._loss_range = (
            min(self._loss_range[0], value / moment.divisor),
            max(self._loss_range[1], value / moment.divisor),
        )

    def _update_network(self, alpha: Tensor, step: OpenStep) -> None:
        """Eq. 9: grad_phi L_val = (d L_val / d alpha) grad_phi alpha."""
        group = self.lr.process_group
        if self.val_gradients is not None:
            self.last_val_loss, slope = step.slope_of(*self.val_gradients(), self.model, group)
        else:
            assert self.val_loss is not None
            self.last_val_loss, slope = step.slope(
                self.model, self.val_loss, self._loss_scale(), group, self._val_random
            )
        if not (math.isfinite(self.last_val_loss) and math.isfinite(slope)):
            self._skip(f"the validation loss is {self.last_val_loss}, its slope {slope}")
            return
        self.last_hypergradient = slope
        self.meta_optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            (slope * alpha).backward()
        self.meta_optimizer.step()
        self.engine.backend.set_weights([self.net])
        self.num_updates += 1

    def _alpha(self, loss: float, moment: Moment) -> tuple[Tensor, Tensor]:
        """alpha_t as a function of phi, through the last `bptt` steps of the memory; and the memory after."""
        past = [step for step in self._past if math.isfinite(float(step.loss))]
        memory = past[0].memory.to(moment.memory) if past else moment.memory
        for step in (*past, Past(loss, moment.progress, memory)):
            scaled = torch.full((), float(step.loss) / moment.divisor, dtype=memory.dtype, device=memory.device)
            with torch.autocast("cpu", enabled=False):
                factor, memory = predict(self.net, scaled, float(step.progress), memory)
        rule = self.engine.rule
        return torch.clamp(moment.range * factor, rule.min_lr, rule.max_lr), memory

    def _remember(self, loss: float | Tensor) -> None:
        if self.bptt > 1:
            own = loss.clone() if isinstance(loss, Tensor) else loss
            self._past.append(Past(own, self.engine.backend.progress(), self.engine.backend.copy_memory()))

    def _take(self) -> None:
        """The optimizer's step, through the GradScaler where there is one."""
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def _loss_scale(self) -> float:
        return 1.0 if self.scaler is None else self.scaler.get_scale()

    def _skip(self, why: str) -> None:
        if not self.skipped_updates:
            _check.warn(f"a meta-update was skipped: {why} (skipped_updates counts them)")
        self.skipped_updates += 1


def _check_kinds(
    model: Any, optimizer: Any, val_loss: Any, val_gradients: Any, net: Any, scaler: Any, gamma: Any
) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {model!r}: pass the model in training")
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}: pass the optimizer of the training"
        )
    if net is not None and not isinstance(net, ScheduleNet):
        raise TypeError(f"net must be a schedule network or None, got {net!r}: pass LSTMNet(), TrendNet() or MLPNet()")
    if (val_loss is None) == (val_gradients is None):
        raise TypeError(f"pass val_loss, or val_gradients instead of it, got {val_loss!r} and {val_gradients!r}")
    if val_loss is not None and not callable(val_loss):
        raise TypeError(f"val_loss must be a function without arguments that returns a loss, got {val_loss!r}")
    if val_gradients is not None and not callable(val_gradients):
        raise TypeError(f"val_gradients must be a function that returns a loss and gradients, got {val_gradients!r}")
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"scaler must be a torch.amp.GradScaler or None, got {scaler!r}")
    if gamma is not None and not isinstance(gamma, Gamma):
        raise TypeError(f"gamma must be a mlrsnet.Gamma or None, got {gamma!r}: pass Gamma() for the paper's")
    if gamma is not None and gamma.policy == "relative":
        raise ValueError("gamma must not be relative for Algorithm 1, got 'relative': use HorizonTrainer, or Gamma()")


def _names(compat: str | Collection[str]) -> frozenset[str]:
    if not isinstance(compat, Collection):
        raise TypeError(f"compat must be a name or a list of names, got {compat!r}: pass 'official', or some of COMPAT")
    names = [compat] if isinstance(compat, str) else list(compat)
    known = {_check.one_of("compat", name, ("official", *COMPAT)) for name in names}
    return frozenset(COMPAT if "official" in known else known)


def _meta_optimizer(given: MetaOptimizer | None, net: ScheduleNet) -> Optimizer:
    if given is None:
        return Adam(net.parameters(), lr=1e-3, weight_decay=1e-4, foreach=True)
    if not isinstance(given, Optimizer) and not callable(given):
        raise TypeError(f"meta_optimizer must be an optimizer or a function that makes one, got {given!r}")
    made = given if isinstance(given, Optimizer) else given(net.parameters())
    held = {id(parameter) for group in made.param_groups for parameter in group["params"]}
    if not held & {id(parameter) for parameter in net.parameters()}:
        raise ValueError(
            "meta_optimizer must hold the parameters of net, got one with others: make it from net.parameters()"
        )
    return made


def _describe(optimizer: Optimizer) -> str:
    group = optimizer.param_groups[0]
    shown = [f"{key}={group[key]}" for key in ("momentum", "nesterov", "betas", "weight_decay") if group.get(key)]
    return f"{type(optimizer).__name__}({', '.join(shown)})"


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
