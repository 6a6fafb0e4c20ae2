"""`MetaTrainer`: the paper's meta-training (Section 3.2.2, Algorithm 1).

Let f_t be the training loss, theta_t the memory of the schedule network A, and d_t the direction of the user's
optimizer. Every T_val steps:

    phi_{t+1} = phi_t - Adam(grad_phi L_val(w_t - A(f_t, theta_t; phi_t) d_t))      (Eq. 10)
    w_{t+1}   = w_t - A(f_t, theta_t; phi_{t+1}) d_t                                (Eq. 12)

In between, phi is fixed and a step is the same as `LearnedLR`'s. `provisional` holds the gradient of Eq. 10.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mlrsnet import _check
from mlrsnet._driver import Driver
from mlrsnet.algorithm2 import NetState
from mlrsnet.card import Card
from mlrsnet.meta.authors import Departures
from mlrsnet.meta.learning import Learning
from mlrsnet.meta.provisional import Provisional, check_linear
from mlrsnet.meta.unroll import Unroll
from mlrsnet.meta.validation import by_parameter, gradients_of
from mlrsnet.nets import ScheduleNet
from mlrsnet.ops import DEVICE
from mlrsnet.ranks import share_from_first
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

NOT_ALONE = (
    "the optimizer took a step outside of MetaTrainer.step(loss), which takes one itself: remove optimizer.step(), or every batch "
    "moves the weights more than once"
)

STATE = {"lr", "net", "meta_optimizer", "counts", "last", "loss_range", "kept", "past", "val_random"}


class MetaTrainer:
    """Trains a model and the network that sets its LR. Call `meta.step(loss)` instead of `optimizer.step()`.

    Args:
        model: the model in training. Its buffers and modes are restored after a validation pass, which runs under DDP's
            `no_sync`.
        optimizer: the model's optimizer. Its step must be linear in the LR, as are those of torch's SGD, Adam, AdamW, Adamax,
            NAdam, RAdam, RMSprop, Adagrad, Adadelta and Muon. At a meta-update its step is taken at an LR of 4096 and then
            shortened, so step hooks of others must not use the weights they see there.
        total_steps: T, optimizer steps of the whole training.
        val_loss: computes the mean loss of the next validation batch with the current weights. It draws from a global
            random state of its own, which starts as a copy of the training's and carries over from call to call.
        val_gradients: use instead of `val_loss` if you compute gradients yourself, for example in a CUDA graph. Returns
            the loss and its unscaled gradients in the order of `model.parameters()`, None for a parameter without one.
            Buffers and `.grad` are not restored after it.
        net: the schedule network, trained in place; the paper's `LSTMNet()` if None.
        scaler: a `torch.amp.GradScaler`. It takes the steps, and also scales the validation loss.
        learning: T_val, the network's optimizer, and what is kept.
        departures: what is done as in the authors' program instead; nothing if None.
        card: name, `learned_on` and range of the schedule. The rest is filled in.
        options: num_classes, initial_loss, scale, min_lr, max_lr, process_group, as for `LearnedLR`.

    >>> import torch, mlrsnet
    >>> from mlrsnet.meta import Learning
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x, y = torch.randn(24, 8, 4), torch.randint(3, (24, 8))  # 20 batches to train on, 4 to validate
    >>> def batch_loss(i):
    ...     return torch.nn.functional.cross_entropy(model(x[i]), y[i])
    >>> val = iter(range(20, 24))
    >>> meta = mlrsnet.MetaTrainer(
    ...     model, optimizer, total_steps=20, val_loss=lambda: batch_loss(next(val)), num_classes=3, learning=Learning(every=5)
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
        scaler: torch.amp.GradScaler | None = None,
        learning: Learning | None = None,
        departures: Departures | None = None,
        card: Card | None = None,
        **options: Any,
    ) -> None:
        self.learning, self.departures = learning or Learning(), departures or Departures()
        _check_kinds(model, optimizer, scaler, net, val_loss, val_gradients)
        check_linear(optimizer, self.learning.assume_linear)
        self.departures.check(options.get("initial_loss"))
        total_steps = _check.number_of_steps("total_steps", total_steps, hint="optimizer steps of the whole training")
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.val_loss, self.val_gradients = val_loss, val_gradients
        self.every = self.departures.period(self.learning.every)
        self.net, self._card = net or self.departures.net(), card or Card()
        law = Schedule(self.net, self._card)
        self.lr = LearnedLR(optimizer, law, total_steps=total_steps, **options)
        self._driver = self.lr._driver
        self._driver.detach()
        _watch_others(optimizer, self._driver)
        self.net.cpu().requires_grad_(True)  # on a GPU, launching kernels would cost more than the arithmetic
        for parameter in self.net.parameters():  # all ranks start with the first rank's network
            share_from_first(parameter, self._driver.process_group)
        self._use_net()
        self.meta_optimizer = self.learning.optimizer(self.net)
        self.num_updates = self.skipped_updates = 0
        self.last_hypergradient: float | None = None
        self.last_provisional_lr: float | None = None
        self.last_val_loss: float | None = None
        self._unroll = Unroll(self.net, law, self.learning.bptt)
        self._loss_range = (math.inf, -math.inf)
        self._kept: dict[int, dict[str, Tensor]] = {}
        self._val_random: dict[str, Tensor] = {}

    def step(self, loss: float | Tensor | None = None) -> None:
        """Take one optimizer step at the LR the network gives for this loss. Every T_val steps, also train the network."""
        self._open(loss)
        if not self.update_due:
            self._take()
        elif not math.isfinite(float(self._driver.numbers.loss)):
            self._skip("the training loss is not finite")
            self._take()
        else:
            self._meta_step()
        self._close()

    def _meta_step(self) -> None:
        """Algorithm 1, lines 5 to 8.

        a = A(f_t, theta_t; phi_t), with a graph;  d: one real step of the optimizer, at a fixed LR
        phi_{t+1} = phi_t - Adam(-<grad L_val(w_t - a d), d> grad_phi a)        (Eq. 10)
        w_{t+1} = w_t - A(f_t, theta_t; phi_{t+1}) d                            (Eq. 12)
        """
        alpha, after = self._unroll.alpha(self._driver)
        self.last_provisional_lr = float(self._driver.numbers.lr)
        scale = self._loss_scale()
        step = Provisional(self.optimizer, self._take, self._driver.ratios, self.last_provisional_lr)
        if self._loss_scale() < scale:
            self._skip("the GradScaler skipped the step")  # it lowers its scale when it does
        else:
            self._learn(alpha, step)
        if "advance-twice" in self.departures.names:
            self._driver.numbers.state.memory[...] = after.memory.detach()
        self._driver.open(self.optimizer)
        step.go_to(float(self._driver.numbers.lr))
        self._see(after)

    def _learn(self, alpha: Tensor, step: Provisional) -> None:
        """Eq. 10, with grad_phi L_val = (d L_val / d alpha) grad_phi alpha."""
        loss, gradients, scale = self._validate()
        self.last_val_loss, scaled = step.slope(loss, gradients, self._driver.process_group)
        slope = scaled / scale
        if not (math.isfinite(self.last_val_loss) and math.isfinite(slope)):
            self._skip(f"the validation loss is {self.last_val_loss} and its slope {slope}")
            return
        self.last_hypergradient = slope
        self.meta_optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            (slope * alpha).backward()
        self.meta_optimizer.step()
        self._use_net()
        self.num_updates += 1

    def _validate(self) -> tuple[Tensor, dict[Tensor, Tensor], float]:
        """L_val at the current weights, its gradients, and the scale that they have."""
        if self.val_loss is None:
            assert self.val_gradients is not None
            loss, gradients = self.val_gradients()
            return loss, by_parameter(self.model, gradients), 1.0
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        scale = self._loss_scale()
        return *gradients_of(self.val_loss, self.model, parameters, scale, self._val_random), scale

    @property
    def total_steps(self) -> int:
        """T, optimizer steps of the whole training."""
        return self.lr.total_steps

    @property
    def step_count(self) -> int:
        """Steps so far."""
        return self.lr.last_epoch

    @property
    def update_due(self) -> bool:
        """Whether the next step also trains the network. Such a step reads numbers on the host, so a CUDA graph cannot hold it."""
        return self.departures.is_due(self.step_count, self.every)

    def observe(self, loss: float | Tensor) -> None:
        """Add the loss of a micro-batch, undivided and without the AMP scale. The next `step` uses the mean."""
        self.lr.observe(loss)

    def count_replayed(self) -> None:
        """Count a plain step that a CUDA graph replayed. The host cannot see it otherwise."""
        self._driver.steps += 1
        self._keep()

    def count_skipped(self) -> None:
        """Count a step that a GradScaler of someone else skipped, with the losses that were observed: only the memory goes on."""
        self._open(None)
        if self.update_due:
            self._skip("the GradScaler skipped the step")
        self._close()

    def schedule(self) -> Schedule:
        """The schedule learned so far: a kept network for each phase that is over, the current one for the others."""
        return Schedule([self._phase(end) for end in self._phase_ends()], self.card())

    def card(self) -> Card:
        """How the schedule was learned."""
        low, high = self._loss_range
        names = ", ".join(sorted(self.departures.names))
        theirs = f", authors' departures: {names}" if names else ""
        return replace(
            self._card,
            description=f"Algorithm 1: T_val = {self.every}, {self.num_updates} meta-updates with "
            f"{type(self.meta_optimizer).__name__}, {self.step_count} of {self.total_steps} steps{theirs}.",
            optimizer=_describe(self.optimizer),
            total_steps=self.total_steps,
            gamma=self.departures.range(self._card.gamma),
            loss_range=(low, high) if low < high else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """All state except the model's and the optimizer's. `torch.load(weights_only=True)` can read it."""
        return {
            "lr": self.lr.state_dict(),
            "net": _copies(self.net.state_dict()),
            "meta_optimizer": copy.deepcopy(self.meta_optimizer.state_dict()),
            "counts": [self.num_updates, self.skipped_updates],
            "last": [self.last_hypergradient, self.last_provisional_lr, self.last_val_loss],
            "loss_range": list(self._loss_range),
            "kept": {step: _copies(weights) for step, weights in self._kept.items()},
            "past": self._unroll.state(),
            "val_random": _copies(self._val_random),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where the saved run stopped."""
        missing = sorted(STATE - set(state_dict))
        if missing:
            raise ValueError(f"state_dict must be one saved by MetaTrainer.state_dict, got one without {missing}")
        self.net.load_state_dict(state_dict["net"])
        self._use_net()
        self.lr.load_state_dict(state_dict["lr"])
        self.meta_optimizer.load_state_dict(state_dict["meta_optimizer"])
        self.num_updates, self.skipped_updates = state_dict["counts"]
        self.last_hypergradient, self.last_provisional_lr, self.last_val_loss = state_dict["last"]
        self._loss_range = (state_dict["loss_range"][0], state_dict["loss_range"][1])
        self._kept = {step: _copies(weights) for step, weights in state_dict["kept"].items()}
        self._unroll.load(state_dict["past"], self._driver)
        self._val_random = {device: state.cpu() for device, state in _copies(state_dict["val_random"]).items()}

    def _open(self, loss: float | Tensor | None) -> None:
        """The loss is told, and the LRs are set."""
        if loss is None and not self._driver.window:
            raise ValueError(
                "step needs this batch's loss, got None: pass it, or call observe(loss) for each micro-batch first"
            )
        self._driver.tell(loss)
        self._driver.open(self.optimizer)

    def _close(self) -> None:
        """The step was taken."""
        self._unroll.remember(self._driver)
        self._driver.close(self.optimizer)
        self._keep()

    def _keep(self) -> None:
        """Keep the network where a phase ends."""
        if self.step_count in self._phase_ends():
            self._kept[self.step_count] = _copies(self.net.state_dict())

    def _phase_ends(self) -> list[int]:
        return self.departures.phase_ends(self.total_steps, self.learning.num_phases)

    def _phase(self, end: int) -> ScheduleNet:
        """The network of the phase that ends there: the kept one if the phase is over, else the current one."""
        kept = [known for known in self._kept if known <= end]
        phase = copy.deepcopy(self.net)
        if end <= self.step_count and kept:
            phase.load_state_dict(self._kept[max(kept)])
        return phase

    def _take(self) -> None:
        """Take the optimizer's step, through the GradScaler if there is one."""
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def _see(self, after: NetState) -> None:
        """Remember between which losses it learned, as the network saw them."""
        scaled = float(self._driver.numbers.loss) / float(self.net.divisor(after.initial_loss, after.classes, DEVICE))
        self._loss_range = (min(self._loss_range[0], scaled), max(self._loss_range[1], scaled))

    def _use_net(self) -> None:
        """The schedule takes over the network's weights, where it is."""
        law = self._driver.numbers.law
        assert isinstance(law, Schedule)
        law.take_weights([self.net])

    def _loss_scale(self) -> float:
        return 1.0 if self.scaler is None else self.scaler.get_scale()

    def _skip(self, why: str) -> None:
        if not self.skipped_updates:
            _check.warn(f"a meta-update was skipped: {why} (skipped_updates counts them)")
        self.skipped_updates += 1


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, detached and cloned."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _describe(optimizer: Optimizer) -> str:
    group = optimizer.param_groups[0]
    shown = [f"{key}={group[key]}" for key in ("momentum", "nesterov", "betas", "weight_decay") if group.get(key)]
    return f"{type(optimizer).__name__}({', '.join(shown)})"


def _watch_others(optimizer: Optimizer, driver: Driver) -> None:
    """Warn once if someone else steps the optimizer too. Steps before the first `step` are fine, and those that do nothing."""

    def after_step(optimizer: Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling() or driver.is_open or not driver.steps:
            return
        if not getattr(optimizer, "found_inf", 0) and any(float(group["lr"]) for group in optimizer.param_groups):
            driver.watch.warn_once("alone", NOT_ALONE)

    optimizer.register_step_post_hook(after_step)


def _check_kinds(model: Any, optimizer: Any, scaler: Any, net: Any, val_loss: Any, val_gradients: Any) -> None:
    kinds: tuple[tuple[str, Any, Any, str], ...] = (
        ("model", model, nn.Module, "pass the model in training"),
        ("optimizer", optimizer, Optimizer, "pass the model's optimizer"),
        ("scaler", scaler, torch.amp.GradScaler | None, "pass the GradScaler that scales the loss, or None"),
        ("net", net, ScheduleNet | None, "pass LSTMNet(), TrendNet() or MLPNet()"),
        ("val_loss", val_loss, Callable | None, "pass a function without arguments that returns a loss"),
        ("val_gradients", val_gradients, Callable | None, "pass a function that returns a loss and gradients"),
    )
    for name, value, kind, hint in kinds:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {getattr(kind, '__name__', kind)}, got {value!r}: {hint}")
    if (val_loss is None) == (val_gradients is None):
        raise TypeError(f"pass either val_loss or val_gradients, got {val_loss!r} and {val_gradients!r}")
    if net is not None and (dtype := next(net.parameters()).dtype) not in (torch.float32, torch.float64):
        raise TypeError(f"net must be float32 or float64, got {dtype}: call net.float()")
