"""`Driver`: sets the LRs of an optimizer by its own step hooks.

    before a step   the sensor looks at weights and gradients; the law says alpha; the groups get alpha times their ratios
    after it        the sensor looks again; what the law remembers is kept; the clock ticks

Laws are pure, so a step may be opened twice, as where one optimizer calls another: the first end of a step counts.

The hooks own the driver, and it knows the optimizer only while a hook runs: `LearnedLR` need not be kept, and nothing keeps an
optimizer alive.
"""

import math
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed
from torch.optim import Optimizer

from mlrsnet import _check, _groups, _optimizers
from mlrsnet._losses import as_scalar, mean
from mlrsnet._numbers import Device, Host, Limits
from mlrsnet._validation import Validation
from mlrsnet._watch import Watch
from mlrsnet.facts import read_facts
from mlrsnet.law import Facts, Law
from mlrsnet.plan import OPEN_GROWTH, OPEN_STEPS, Plan
from mlrsnet.ranks import Group, average_over_ranks, check_group
from mlrsnet.sensors import Distance, is_capturing

NO_LOSS = (
    "the schedule {!r} reads the loss, and no loss was told since the last optimizer step: call step(loss) before "
    "optimizer.step(), or use 'universal', which needs none"
)
CAPTURED = (
    "{} cannot be captured in a graph: give the optimizer an LR that is a tensor on the GPU, and take a step before the capture, "
    "as torch asks for"
)

CAPTURED_RAISE = (
    "on_nonfinite='raise' cannot be captured in a graph, since it reads every loss on the host: pass on_nonfinite='hold', and look "
    "at status(), which counts losses that were not finite"
)


class Driver:
    """Sets the LRs of an optimizer.

    Args:
        optimizer: the one that owns the parameter groups. It is not kept.
        law: what decides an LR.
        facts: what the user told before the training.
        total_steps: optimizer steps of the whole training; None if nobody knows.
        limits: the user's.
        raises: whether a loss that is not finite is an error.
        on_stuck: `warn` or `raise` if the training will come to nothing.
        process_group: ranks whose losses are averaged.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        law: Law,
        facts: Facts,
        total_steps: int | None,
        limits: Limits,
        *,
        raises: bool = False,
        on_stuck: str = "warn",
        process_group: Group = None,
    ) -> None:
        law.check(facts)
        self.law, self.facts, self.limits, self.raises = law, facts, limits, raises
        self.is_open_ended, self.is_annealing, self.is_removed = total_steps is None, False, False
        plan = Plan.of(OPEN_STEPS if total_steps is None else total_steps)
        self.steps, self.end = 0, plan.total_steps
        groups = optimizer.param_groups
        _groups.remember_initial_lrs(groups)
        _groups.check(groups)
        self.main, device = _groups.main_group(groups), _groups.device_of(groups)
        lr = float(groups[self.main]["lr"])
        self.numbers = Host(law, facts, plan, lr) if device is None else Device(law, facts, plan, lr, device)
        self.sensor, self.distance = law.sensor(device), Distance()
        check_group(process_group)
        self.process_group, self.validation, self.plan = process_group, Validation(), plan
        self.window: list[float | Tensor] = []
        self.told: float | Tensor | None = None
        self._last: Callable[[], Any] | None = None  # weak for a tensor, which holds the graph of its batch
        self.watch = Watch(on_stuck, plan.total_steps)
        self.has_begun = self.is_loaded = False
        self._had_matrices = _optimizers.has_matrices(optimizer)
        self.groups: list[dict[str, Any]] = []
        self.ratios: list[float] = []
        self._given: list[Any] = []
        self._still: list[bool] = []
        self._ids: list[int] = []
        self._lrs: list[Any] = []
        self._step_handles: list[Any] = []
        self._handles: list[Any] = []
        self.is_open = self._waits = False
        self._used: Any = None
        self._bind(optimizer)
        law.carry_over(self._settings, facts)  # an error comes now rather than at the first step
        misfit = law.fits(self._settings)
        if misfit:
            self.watch.warn_once("misfit", misfit)

    def attach(self, optimizer: Optimizer) -> None:
        """Follow this optimizer's steps from now on. Another driver there is replaced."""
        other = driver_of(optimizer)
        if other is not None:
            _check.warn(
                "this optimizer has a LearnedLR already, which the new one replaces: make one for each optimizer, or call "
                "remove() on the old one first"
            )
            other.remove()
        self.bind(_optimizers.owner(optimizer))  # a copy knows none
        for one in _optimizers.with_hooks(optimizer):
            self._step_handles += [one.register_step_pre_hook(self.pre), one.register_step_post_hook(self.post)]
            if hasattr(one, "_optimizer_load_state_dict_post_hooks"):  # some wrappers have only the others
                self._handles.append(one.register_load_state_dict_post_hook(self._loaded))

    def detach(self) -> None:
        """Take the step hooks off, for someone who calls `open` and `close` himself."""
        for handle in self._step_handles:
            handle.remove()

    def remove(self) -> None:
        """Leave the optimizer alone from now on."""
        for handle in (*self._step_handles, *self._handles):
            handle.remove()
        self._step_handles, self._handles, self.is_removed = [], [], True

    def pre(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """See `Optimizer.register_step_pre_hook`. A closure computes the gradients: the step begins after its first call."""
        if torch.compiler.is_compiling():
            return uncompiled(self.pre, optimizer, args, kwargs)
        kind: Any = type(optimizer)
        place = _optimizers.closure_place(kind)
        if place is not None and place < len(args) and args[place] is not None:
            return (*args[:place], self._followed(optimizer, args[place]), *args[place + 1 :]), kwargs
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": self._followed(optimizer, kwargs["closure"])}
        self.open(optimizer)
        return None

    def post(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """See `Optimizer.register_step_post_hook`."""
        if torch.compiler.is_compiling():
            uncompiled(self.post, optimizer, args, kwargs)
        else:
            self.close(optimizer)

    @torch.no_grad()
    def open(self, optimizer: Optimizer) -> None:
        """A step is about to be taken, with the gradients as they are: set the LRs."""
        if is_capturing():  # settling waits for the GPU, which a capture forbids
            self._check_capture()
        self.settle()
        self.bind(optimizer)
        left = [] if [group["lr"] for group in self.groups] == self._given else self._left()
        self.is_open = not left or not all(left)
        if not self.is_open:
            return
        if left != self._still:
            self._still = left
            still = left or [False] * len(self.groups)
            self.sensor.follow(
                self.groups, [0.0 if one else ratio for one, ratio in zip(still, self.ratios, strict=True)]
            )
        if not self.has_begun:
            self._begin(optimizer)
        if self.window:
            self.tell(None)
        if self.law.needs_loss and self.told is None:
            raise RuntimeError(NO_LOSS.format(self.law.name))
        self.sensor.before(optimizer)
        scale = self.limits.scale * self.law.carry_over(self._settings, self.facts)
        self.numbers.open(self.told, self.sensor, scale, self.limits)
        self._given = self.numbers.write(self.groups, self.ratios, left)

    @torch.no_grad()
    def close(self, optimizer: Optimizer) -> None:
        """The step was taken, if one is open."""
        if not self.is_open:
            return
        self.is_open = False
        self.sensor.after(optimizer, self.numbers.lr)
        skipped = getattr(optimizer, "found_inf", None)  # of a GradScaler, whose fused optimizer may do nothing
        self._used, self.told = self.told, None
        if skipped is None or isinstance(self.numbers, Device):
            self._commit(skipped)
        else:
            self._waits = True

    def settle(self) -> None:
        """Read what the last step did, where that had to wait for a device."""
        taken = self.sensor.settle()
        if self._waits:
            self._waits = False
            if taken:
                self._commit(None)

    def tell(self, loss: float | Tensor | None) -> None:
        """The loss of the next step: the mean of `loss` and what was observed, over all ranks. It replaces one that no step has
        used.

        The same object once more is the same loss: Accelerate calls a scheduler's `step` once for each process.
        """
        if self._last is not None and loss is self._last() and self.told is not None and not self.window:
            return
        self._last = weakref.ref(loss) if isinstance(loss, Tensor) else lambda: loss
        losses = self.window if loss is None else [*self.window, as_scalar(loss)]
        self.window = []
        told = losses[0] if len(losses) == 1 else mean(losses)
        if distributed.is_available() and distributed.is_initialized():
            told = average_over_ranks(told, self.process_group)
        if self.raises and is_capturing():
            raise RuntimeError(CAPTURED_RAISE)
        if self.raises and not math.isfinite(value := float(told)):
            self.discard()
            raise FloatingPointError(
                f"loss must be finite with on_nonfinite='raise', got {value}: lower scale= or max_lr=, or pass "
                "on_nonfinite='hold' to skip such losses"
            )
        self.told = self.numbers.tell(told)

    def discard(self) -> None:
        """Drop what was observed, and what waits for its step."""
        self.window, self.told, self._last = [], None, None
        if isinstance(self.numbers, Device):
            self.numbers.loss.fill_(math.nan)

    def follow(self, plan: Plan, end: int) -> None:
        """Set where progress goes, and after how many steps it ends."""
        self.plan, self.end = plan, end
        self.numbers.follow(plan)

    def validate(self, loss: float | Tensor) -> float:
        """Read a validation loss; what every LR is multiplied by from the next step on."""
        value = float(average_over_ranks(as_scalar(loss, allow_whole=True), self.process_group))
        if not math.isfinite(value):
            self.watch.warn_once("validation", f"a validation loss was not finite ({value}), and was not read")
            return self.validation.share
        self.settle()
        before = self.validation.share
        self.validation.see(value, is_training=self.steps > 0)
        self.numbers.set_share(self.validation.share)
        if self.validation.share != before and not self.validation.has_fallen:
            self.watch.warn_once(
                "no_falls",
                f"validate(loss) got nothing below its first loss, {self.validation.lowest:.4g}, so every LR is now "
                f"{self.validation.share:g} times what it would be: if higher is better, pass 1 - accuracy or the like; else the "
                "network was best when it was first validated",
            )
        return self.validation.share

    def resume(self, main: int, validation: Validation) -> None:
        """Go on from numbers that were restored: the groups get their LRs, and what was said is not said again."""
        self.main, self.validation = min(main, len(self.groups) - 1), validation
        self.ratios = _groups.ratios_to(self.groups, self.main)
        self.sensor.follow(self.groups, self.ratios)
        self.numbers.set_share(validation.share)
        self.has_begun = self.is_open = self._waits = False
        self.discard()
        state = self.numbers.read()[0]
        self.watch = Watch(self.watch.on_stuck, self.plan.planned, knows_begin=not self.steps)
        self.watch.warned, self.watch.seen = set(self.law.problems(state)), self.steps
        if self.steps:
            self.numbers.write(self.groups, self.ratios, [])
        if isinstance(self.numbers, Host):
            self._given = [None] * len(self.groups)

    def look(self, state: Any, steps: int) -> None:
        """Say what went wrong so far. With numbers on the host every step does so by itself."""
        if isinstance(self.numbers, Device):
            for loss in self.numbers.losses_since(self.watch.seen):
                if not math.isnan(loss):
                    self.watch.see(loss, self.plan.planned // self.numbers.stride)
            self.watch.seen = steps
        self.watch.look(self.law, state)
        if steps > self.end and not self.is_open_ended:
            self._tell_end(steps)
        if self.is_open_ended and steps >= OPEN_STEPS:
            self.watch.warn_once(
                "open",
                f"the training has taken {steps} steps and has no end yet, so its LR does not fall: before you stop, call "
                "anneal(steps) and train for so many steps more",
            )

    def bind(self, optimizer: Optimizer) -> None:
        """Read the groups again if they are not those that are known."""
        groups = optimizer.param_groups
        if list(map(id, groups)) != self._ids:
            self._bind(optimizer)

    def _commit(self, skipped: Tensor | None) -> None:
        """The step counts, and the clock ticks. A loss on a device is seen later, by `look`."""
        self.numbers.commit(self.steps, skipped)
        self.steps += 1
        if self._used is not None and isinstance(self.numbers, Host):
            self.watch.see(self.numbers.loss, self.plan.planned)
            self.watch.look(self.law, self.numbers.state)
        if self.is_open_ended:
            self._grow()
        elif self.steps > self.end and skipped is None:  # else only a device knows how many
            self._tell_end(self.steps)

    def _grow(self) -> None:
        """The plan of a training without an end, once half of it is over."""
        if 2 * self.steps >= self.plan.planned:
            total = self.plan.planned + self.plan.planned // OPEN_GROWTH
            self.follow(Plan.of(total), total)

    def _tell_end(self, steps: int) -> None:
        why = (
            f"step {steps} is past the end that LearnedLR.anneal(steps) set, step {self.end}; the LR stays where it "
            "ended: stop the training there, or call anneal(steps) again before it"
            if self.is_annealing
            else f"step {steps} is past total_steps={self.end}, which counts optimizer steps, not epochs; the schedule stays "
            "where it ends: pass the steps of the whole training, or call LearnedLR.extend(total_steps)"
        )
        self.watch.warn_once("end", why)

    def _left(self) -> list[bool]:
        """Which groups to leave alone, because someone set their LR to 0; empty for none. Any other foreign LR is overwritten,
        with a warning.

        torch's distributed checkpoints step at an LR of 0 to create the optimizer's state. A tensor on a device is not asked.
        """
        if isinstance(self.numbers, Device):
            left = [self._is_left_on_device(place) for place in range(len(self.groups))]
            return left if any(left) else []
        left = []
        for place, (group, ratio, given) in enumerate(zip(self.groups, self.ratios, self._given, strict=True)):
            lr = group["lr"]
            is_foreign = ratio != 0 and lr != given
            left.append(bool(is_foreign and lr == 0))
            if is_foreign and lr != 0 and given is not None:
                self._tell_touched(place, f"from {given:.9g} to {float(lr):.9g}")
        return left if any(left) else []

    def _is_left_on_device(self, place: int) -> bool:
        """The same where LRs are tensors on a device: someone may have put another one in the place of ours."""
        lr, own = self.groups[place]["lr"], self._lrs[place]
        if lr is own:
            return False
        if (not isinstance(lr, Tensor) or lr.device.type == "cpu") and lr == 0:
            return bool(self.ratios[place])
        self.groups[place]["lr"] = own
        self._tell_touched(place, "to something else than the tensor that was there")
        return False

    def _tell_touched(self, place: int, how: str) -> None:
        self.watch.warn_once(
            "touched",
            f"the LR of parameter group {place} was changed {how} since the last optimizer step, and LearnedLR sets it again: "
            "use no other scheduler beside it, nor an optimizer that sets its own LR; scale=, min_lr= and max_lr= change what "
            "LearnedLR sets",
        )

    def _begin(self, optimizer: Optimizer) -> None:
        """The first step: look at what only its weights tell. A resumed run has it in its state."""
        if self._had_matrices and not _optimizers.has_matrices(optimizer):  # someone has put flat ones in their place
            raise ValueError(_optimizers.FLAT)
        self.has_begun = True
        weights = [weight for group in self.groups for weight in group["params"]]
        self.distance.begin(weights)
        if self.is_loaded:
            return
        self.facts = self.facts.seen(read_facts(weights), _optimizers.is_adaptive(self._settings))
        self.numbers.begin(self.facts)
        if _optimizers.has_stepped(optimizer):
            _check.warn(
                "the optimizer has taken steps before, and this LearnedLR begins its schedule anew: to go on with a training, call "
                "LearnedLR.load_state_dict with the state that was saved with it; to train further on purpose, make a new optimizer"
            )

    def _check_capture(self) -> None:
        if isinstance(self.numbers, Host):
            raise RuntimeError(CAPTURED.format("a float LR, or one on a CPU,"))
        if not self.has_begun:
            raise RuntimeError(CAPTURED.format("the first step"))
        if self.is_open_ended:
            raise RuntimeError(
                "total_steps=None cannot be captured in a graph, since the host moves the end as it sees steps: pass a total_steps "
                "that is long enough, and call anneal(steps) when the training should end"
            )

    def _bind(self, optimizer: Optimizer) -> None:
        """Read the groups. Some may have been added or removed, and `Optimizer.load_state_dict` makes all of them new."""
        groups = optimizer.param_groups
        _groups.remember_initial_lrs(groups)
        _groups.own_tensors(optimizer, self.numbers.device)
        self.main = self._find_main(groups)
        known = dict(zip(self._ids, self._given, strict=False))
        self.groups, self._ids = list(groups), list(map(id, groups))
        self.ratios = _groups.ratios_to(groups, self.main)
        self._settings = _optimizers.settings(optimizer, groups[self.main])
        self._lrs = [group["lr"] for group in groups]
        if self.numbers.device is not None:
            self._given = self._lrs
        else:  # an LR of 0 that is there before us, as an old scheduler leaves it, is no wish to stand still
            self._given = [known.get(id(group), None if group["lr"] else 0.0) for group in groups]
        self._still = []
        self.sensor.follow(self.groups, self.ratios)
        if self.has_begun:
            self.distance.begin([weight for group in groups for weight in group["params"]])

    def _find_main(self, groups: list[dict[str, Any]]) -> int:
        """Where the main group is now."""
        known = self.groups[self.main] if self.main < len(self.groups) else None
        place = next((place for place, group in enumerate(groups) if group is known), self.main)
        was_removed = len(groups) < len(self.groups) and groups[min(place, len(groups) - 1)] is not known
        return _groups.main_group(groups) if was_removed or not groups[place]["initial_lr"] else place

    def _followed(self, optimizer: Optimizer, closure: Callable[..., Any]) -> Callable[..., Any]:
        is_first = True

        def then_open(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_first
            result = closure(*args, **kwargs)
            if is_first:
                is_first = False
                self.open(optimizer)
            return result

        return then_open

    def _loaded(self, optimizer: Optimizer) -> None:
        """The optimizer's state was loaded, with LRs in new places."""
        _groups.put_back(optimizer.param_groups, self._lrs)
        self._ids = []
        self._bind(optimizer)

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        names = ("groups", "ratios", "_given", "_lrs", "_ids", "_handles", "_step_handles")
        forgotten: dict[str, Any] = {name: [] for name in names}
        return self.__dict__ | forgotten | {"_settings": None, "is_open": False, "_last": None}


def driver_of(optimizer: Optimizer) -> Driver | None:
    """The driver that follows an optimizer's steps."""
    for one in _optimizers.with_hooks(optimizer):
        for hook in one._optimizer_step_pre_hooks.values():
            if isinstance(driver := getattr(hook, "__self__", None), Driver):
                return driver
    return None


@torch._disable_dynamo
def uncompiled(call: Any, *arguments: Any) -> Any:
    """Out of a compiled step: what a driver remembers changes in every step, and would compile it again and again."""
    return call(*arguments)
