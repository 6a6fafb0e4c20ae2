"""A schedule: one network per phase of training, and a card. It can be simulated, saved, loaded, shared and plotted.

Algorithm 2 of the paper: meta-training keeps k of its networks, such as phi_{T/3}, phi_{2T/3} and phi_T for k = 3. A new
training of any length is split into k equal phases, and phase l uses the l-th network. The memory carries over.
"""

import copy
import math
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from mlrsnet import _check, _optimizers, algorithm2, plots
from mlrsnet.algorithm2 import NetState
from mlrsnet.card import Card, described
from mlrsnet.default import NAME, Default
from mlrsnet.files import names, storage
from mlrsnet.files.storage import ScheduleError
from mlrsnet.files.untrusted import printable, reason
from mlrsnet.law import NOT_FINITE, Facts, Seen
from mlrsnet.nets import KINDS, ScheduleNet, TrendNet, build_net, unroll
from mlrsnet.ops import DEVICE, HOST, Operations
from mlrsnet.plan import Plan
from mlrsnet.ranges import Gamma, PerplexityGamma
from mlrsnet.sensors import Still


class Schedule:
    """Networks for the phases of a training, and a card that says how to use them.

    The networks are copied to the CPU and frozen. All phases share one description (kind, sizes, inputs, loss scale...).

    Args:
        phases: one network per phase, in order. A single network is one phase.
        card: where the schedule comes from, and how the range of the LR is found.

    >>> from mlrsnet.nets import LSTMNet
    >>> schedule = Schedule([LSTMNet(), LSTMNet(), LSTMNet()])
    >>> schedule.simulate([2.3, 1.7, 1.2, 0.9, 0.5, 0.4], gamma=0.67).shape
    (6,)
    """

    def __init__(self, phases: ScheduleNet | Sequence[ScheduleNet], card: Card | None = None) -> None:
        nets = list(phases) if isinstance(phases, Sequence) else [phases]
        if not nets or not all(isinstance(net, ScheduleNet) for net in nets):
            raise TypeError(f"phases must be one or more schedule networks such as LSTMNet(), got {phases!r}")
        if any(net.config() != nets[0].config() for net in nets):
            raise ValueError(f"all phases must have the same description, got {[net.config() for net in nets]}")
        for index, net in enumerate(nets):
            for name, tensor in net.state_dict().items():
                if not torch.isfinite(tensor).all():
                    raise ScheduleError(
                        f"{name} of phase {index} is not finite: meta-training diverged or the file is damaged"
                    )
        self.phases = tuple(copy.deepcopy(net).cpu().requires_grad_(False) for net in nets)
        self.card = card or Card()
        self._weights: list[dict[str, Any]] = []
        self._place()

    needs_loss = True

    @property
    def name(self) -> str:
        """The card's."""
        return self.card.name

    @property
    def knows_progress(self) -> bool:
        """Whether its LRs depend on how much of the training is over."""
        return self.net.knows_progress

    def check(self, facts: Facts) -> None:
        """See `Law`."""
        if facts.num_classes is None and self.card.gamma.needs_classes:
            raise ValueError(
                f"num_classes must be given for the schedule {self.name!r}, got None: the range of its LRs depends on it; pass the "
                "number of classes, or the size of the vocabulary"
            )
        if facts.initial_loss is not None:
            self.check_loss(facts.initial_loss, facts.num_classes, "initial_loss")

    def check_loss(self, loss: float, num_classes: int | None, name: str = "the first loss") -> None:
        """Raise where a first loss gives no range, or nothing to divide losses by; `name` is what the error calls it."""
        self.card.gamma(loss, num_classes, name)
        self.loss_divisor(loss, num_classes, name)

    def begin(self, facts: Facts) -> NetState:
        """See `Law`."""
        first, classes = (math.nan if one is None else float(one) for one in (facts.initial_loss, facts.num_classes))
        memory = _single_or_double(self.net.initial_state()).numpy()
        return NetState(0, -1, 0, 0, 0, first, classes, math.nan, math.nan, memory)

    def carry_over(self, group: dict[str, Any], facts: Facts) -> float:
        """See `Law`."""
        return self.card.gamma.carry_over(group, facts.num_classes)

    def sensor(self, device: torch.device | None) -> Still:
        """See `Law`: networks read the loss only."""
        return Still()

    def on(self, device: torch.device) -> "Schedule":
        """See `Law`."""
        placed = copy.copy(self)
        stacked = {
            name: _single_or_double(torch.stack([net.get_parameter(name).detach() for net in self.phases])).to(device)
            for name, _ in self.net.named_parameters()
        }
        placed._weights = [stacked]
        return placed

    def advance(self, state: NetState, seen: Seen, plan: Plan, o: Operations = HOST) -> tuple[Any, NetState]:
        """See `Law`; Algorithm 2. On the host, a first loss without a range is an error."""
        network = self._on_host if o is HOST else self._on_device
        after = algorithm2.advance(
            state, seen, plan, network, self.net, self.card.gamma, self.num_phases, self.warn_outside, o
        )
        if o is HOST and after.unusable > state.unusable:
            first = seen.loss if math.isnan(state.initial_loss) else state.initial_loss
            self.check_loss(first, None if math.isnan(state.classes) else int(state.classes))
        return after.lr, after

    @torch.no_grad()
    def take_weights(self, nets: Sequence[ScheduleNet]) -> None:
        """Continue with other weights of the same networks, in place."""
        for own, other in zip(self.phases, nets, strict=True):
            own.load_state_dict(other.state_dict())
        for name, weight in self._weights[0].items():
            if isinstance(weight, Tensor):
                weight.copy_(torch.stack([net.get_parameter(name) for net in nets]))

    def status(self, state: NetState) -> dict[str, Any]:
        """See `Law`."""
        names = ("phase", "initial_loss", "gamma", "nonfinite", "unusable", "outside")
        return {name: getattr(state, name) for name in names}

    def problems(self, state: NetState) -> dict[str, str]:
        """See `Law`."""
        found = {}
        if state.nonfinite:
            found["nonfinite"] = NOT_FINITE
        if state.unusable and not state.step:
            found["unusable"] = (
                f"the range of the LR could not be computed from any of the {state.unusable:.0f} losses so far, and the "
                "optimizer's own LR was kept: pass initial_loss= the loss of an untrained network, about log(num_classes), or "
                "use 'universal', which takes any loss"
            )
        if state.outside:
            found["outside"] = self._outside(state)
        return found

    def fits(self, group: dict[str, Any]) -> str:
        """Why the range may be wrong for the optimizer of a parameter group; empty where it is known."""
        if _optimizers.is_known(group):
            return ""
        return (
            f"the range of the schedule {self.name!r} was not made for this optimizer, which gets that of SGD: compare "
            "LearnedLR.get_last_lr() with an LR that you trust, and correct it with scale=, or use 'universal', which measures the "
            "optimizer's steps"
        )

    def _outside(self, state: NetState) -> str:
        if self.card.loss_range is None:
            return (
                f"a loss was negative, and the schedule {self.name!r} was learned on positive ones only, so its LRs may not "
                "fit: use the default schedule, which takes any loss"
            )
        unit = float(self.net.divisor(state.initial_loss, state.classes, HOST))
        low, high = (unit * limit + 0.0 for limit in self.card.loss_range)
        classes = "pass num_classes=, " if self.net.loss_scale == "log_classes" and math.isnan(state.classes) else ""
        return (
            f"a loss was far outside those that the schedule {self.name!r} was learned on, in this training {low:.3g} to "
            f"{high:.3g}, and its LRs may not fit: check that the loss is a mean over the batch and not scaled, {classes}or "
            "use the default schedule, which reads only how the loss changes"
        )

    def _place(self) -> None:
        """Weights as numpy's arrays; those in float32 and float64 share the memory of the networks."""
        self._weights = [
            {name: _single_or_double(one.detach()).numpy() for name, one in net.named_parameters()}
            for net in self.phases
        ]

    def _on_host(self, scaled: float, progress: float, phase: int, memory: Any) -> tuple[float, Any]:
        p, memory = self.net.predict(self._weights[phase], scaled, progress, memory, HOST)
        return float(p), memory

    def _on_device(self, scaled: Tensor, progress: Tensor, phase: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        weights = {name: _of_phase(stacked, phase) for name, stacked in self._weights[0].items()}
        with torch.autocast(memory.device.type, enabled=False):
            return self.net.predict(weights, scaled, progress, memory, DEVICE)

    @property
    def num_phases(self) -> int:
        """How many phases, of equal length, a training has."""
        return len(self.phases)

    @property
    def net(self) -> ScheduleNet:
        """The first phase's network, for what all phases share."""
        return self.phases[0]

    def loss_divisor(self, initial_loss: float, num_classes: int | None, name: str = "the first loss") -> float:
        """What the loss is divided by before the network sees it. Errors call `initial_loss` by `name`.

        An untrained classifier's loss is about log(classes), so without `num_classes` the first loss is used.
        """
        divisor = self.net.divisor(initial_loss, math.nan if num_classes is None else num_classes, HOST)
        hint = (
            f"the schedule {self.card.name!r} divides losses by it, so this loss is unsuitable for it; use 'universal', which "
            "takes any loss, or pass initial_loss= a typical one if losses are positive later"
        )
        return _check.positive(name, divisor, hint)

    @property
    def warn_outside(self) -> tuple[float, float]:
        """Warn about losses outside this interval, as the network sees them: the card's, and 0 for a schedule that has never seen a
        negative loss, or reads its logarithm.
        """
        low, high = self.card.warn_outside
        is_positive = isinstance(self.net, TrendNet) or (
            self.card.loss_range is not None and self.card.loss_range[0] >= 0
        )
        return (max(low, 0.0) if is_positive else low, high)

    def simulate(
        self,
        losses: Sequence[float],
        gamma: float = 1.0,
        *,
        num_classes: int | None = None,
        total_steps: int | None = None,
    ) -> np.ndarray:
        """The LR for each loss, in a training of `total_steps` steps.

        Args:
            losses: finite training losses, one per step, from the first on.
            gamma: the range of the LR. The default gives the bare factors.
            num_classes: for schedules that divide the loss by log(classes); the first loss is used if None.
            total_steps: of the whole training; as many as there are losses if None.

        >>> Schedule.load("cifar10-patches").simulate([2.3, 1.9], num_classes=10, total_steps=100).shape
        (2,)
        """
        try:
            values = torch.as_tensor(np.asarray(losses, dtype=np.float64))
        except (TypeError, ValueError):
            values = torch.empty(0)
        if values.ndim != 1 or not len(values) or not torch.isfinite(values).all():
            raise ValueError(f"losses must be a non-empty list of finite numbers, got {losses!r}")
        _check.positive("gamma", gamma)
        if num_classes is not None:
            _check.whole_number("num_classes", num_classes, 2)
        if total_steps is not None:
            hint = "steps of the whole training, of which losses are the first"
            _check.whole_number("total_steps", total_steps, len(values), hint)
        scaled = (values / self.loss_divisor(float(values[0]), num_classes)).to(next(self.net.parameters()))
        return gamma * unroll(self.phases, scaled, total_steps).double().numpy()

    def choose(self, num_phases: int) -> "Schedule":
        """The schedule with fewer phases: what meta-training with this `num_phases` would have kept.

        >>> from mlrsnet.nets import LSTMNet
        >>> Schedule([LSTMNet() for _ in range(6)]).choose(3).num_phases
        3
        """
        count = _check.whole_number("num_phases", num_phases)
        if self.num_phases % count:
            raise ValueError(f"num_phases must divide the schedule's {self.num_phases}, got {num_phases}")
        step = self.num_phases // count
        return Schedule(self.phases[step - 1 :: step], self.card)

    def for_text(self) -> "Schedule":
        """The paper's variant for language models: the network reads loss / log(vocabulary), and gamma reads the perplexity.

        The perplexity's range is for SGD. Over Adam and its relatives, LRs have the range of the loss; see
        `ranges.PerplexityGamma`.
        """
        config = self.net.config() | {"loss_scale": "log_classes"}
        gamma = PerplexityGamma() if isinstance(self.card.gamma, Gamma) else self.card.gamma
        return self._like(config, self._tensors(), replace(self.card, gamma=gamma, loss_range=None))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, atomically. The networks must be of this package, or `load` could not build them again."""
        if type(self.net) is not KINDS.get(self.net.config()["kind"]):
            raise ScheduleError(
                f"networks must be one of {', '.join(KINDS)} to be saved, got {type(self.net).__name__}, which load() could not "
                "build: use it from memory, or save its state_dict() yourself"
            )
        storage.write(path, self._description(), self._tensors())

    @overload
    @classmethod
    def load(cls, schedule: Literal["universal"]) -> Default: ...  # type: ignore[overload-overlap]

    @overload
    @classmethod
    def load(cls, schedule: str | os.PathLike[str]) -> "Schedule": ...

    @classmethod
    def load(cls, schedule: str | os.PathLike[str]) -> "Default | Schedule":
        """Read a schedule; `universal`, the default, is no file. Loading never runs code from a file. One that `save` did not write
        raises `ScheduleError`.

        Args:
            schedule: a name from `mlrsnet.files.names.list_schedules()`, the path of a file, or `hf://owner/name` on the Hub.

        >>> Schedule.load("cifar10-resnet18").num_phases, type(Schedule.load("universal"))
        (3, <class 'mlrsnet.default.Default'>)
        """
        return Default() if schedule == NAME else cls.read(names.find(schedule))

    @classmethod
    def read(cls, path: Path) -> "Schedule":
        """Read a file that `save` wrote; see `load`."""
        description, tensors = storage.read(path)
        try:
            card = Card.from_dict(description["card"])
            return cls._like(description["net"], tensors, card)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
            raise ScheduleError(f"{path} does not hold a valid schedule ({reason(error)}): save it again") from None

    @classmethod
    def from_official(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        layout: str = "official-test",
        name: str = "official",
        gamma: str = "per-phase",
    ) -> "Schedule":
        """The authors' checkpoints as a schedule, one phase per file.

        Args:
            paths: one `.pth` file, or several in the order of training.
            layout: the published files belong to the authors' meta-test network (`official-test`). Their meta-train
                network uses the same keys with another gate order, so its files need `official-train`.
            name: for the card.
            gamma: `initial` computes the range once, from the first loss, as in the paper. `per-phase` computes it again where a
                phase begins, from the loss of that batch; the authors' program takes the mean loss of the whole training set.
        """
        from mlrsnet.files import official  # most programs never read them

        return cls(official.read_nets(paths, layout), official.make_card(name, gamma))

    def push_to_hub(
        self,
        repository: str,
        *,
        license: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        message: str | None = None,
    ) -> str:
        """Share it on the Hugging Face Hub, with a model card. Needs huggingface_hub (`mlrsnet[hub]`).

        Args:
            repository: `owner/name`; created if it does not exist.
            license: the Hub's identifier of a licence, such as `mit`.
            private: whether a new repository is private; the owner's default if None.
            token: token of an account with write access; the one you are logged in with if None.
            message: commit message.

        Returns:
            The address of this commit, `hf://owner/name@commit`, for `Schedule.load` and `LearnedLR`.
        """
        from mlrsnet.files import hub

        text = self.model_card(repository, license=license)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / hub.FILE
            self.save(path)
            message = message or f"Add the schedule {self.card.name}"
            return hub.push(repository, path, text, private=private, token=token, message=message)

    def model_card(self, repository: str, *, license: str | None = None) -> str:
        """The README.md that `push_to_hub` writes: the card, and how to load the schedule from `repository`."""
        from mlrsnet.files import hub

        return hub.model_card(
            self.card,
            self.net.config(),
            phases=self.num_phases,
            digest=self.fingerprint(),
            repository=repository,
            license=license,
        )

    def plot(self, path: str | os.PathLike[str] | None = None, *, max_loss: float = 3.0, ax: Any = None) -> Any:
        """Draw the LR that each constant loss settles at, one curve per phase. Needs matplotlib (`mlrsnet[plots]`).

        Args:
            path: where to write the picture; not written if None.
            max_loss: right end of the axis, in losses as the network sees them.
            ax: matplotlib axes to draw into.

        Returns:
            The matplotlib axes.
        """
        return plots.plot_phases(self.phases, self.card.name, path, max_loss=max_loss, ax=ax)

    def plot_map(self, path: str | os.PathLike[str] | None = None, *, max_loss: float = 3.0, ax: Any = None) -> Any:
        """Draw the LR over loss and progress, for losses that stay constant. It shows whether the schedule reads the loss.

        Args:
            path: where to write the picture; not written if None.
            max_loss: upper end of the axis, in losses as the network sees them.
            ax: matplotlib axes to draw into.

        Returns:
            The matplotlib axes.
        """
        return plots.plot_map(self.phases, self.card.name, path, max_loss=max_loss, ax=ax)

    def fingerprint(self) -> str:
        """A digest of everything that affects an LR: weights, networks and gamma."""
        return storage.digest({"net": self.net.config(), "gamma": self.card.to_dict()["gamma"]}, self._tensors())

    def describe(self) -> str:
        """The card in words, one field per line. Empty fields are left out.

        >>> from mlrsnet.nets import LSTMNet
        >>> print(Schedule(LSTMNet()).describe().splitlines()[0])
        name         unnamed
        """
        lines = described(self.card, self.net.config(), self.num_phases, self.fingerprint()).splitlines()
        return "\n".join(map(printable, lines))  # a card may come from anyone

    def __repr__(self) -> str:
        return (
            f"Schedule({self.card.name!r}, {self.num_phases} x {self.net.config()['kind']}, inputs={self.net.inputs})"
        )

    def _description(self) -> dict[str, Any]:
        return {"card": self.card.to_dict(), "net": self.net.config()}

    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"phase{i}.{name}": tensor for i, net in enumerate(self.phases) for name, tensor in net.state_dict().items()
        }

    @classmethod
    def _like(cls, config: dict[str, Any], tensors: dict[str, Tensor], card: Card) -> "Schedule":
        """Build a schedule from a description and `phase{i}.name` tensors. Every name and shape is checked."""
        phases: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            match = re.fullmatch(r"phase(\d+)\.(.+)", key)
            if match is None or not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
                raise ScheduleError(f"{key} of {tensor.dtype} is not a weight of a phase's network")
            phases.setdefault(int(match[1]), {})[match[2]] = tensor
        if sorted(phases) != list(range(len(phases))) or not phases:
            raise ScheduleError(f"phases must be numbered from 0 without gaps, got {sorted(phases)}")
        if config.get("num_layers", 1) > len(phases[0]):
            raise ScheduleError(f"num_layers is {config['num_layers']} but a phase has only {len(phases[0])} tensors")
        nets = []
        for index in sorted(phases):
            with torch.device("meta"):  # shapes are compared before anything is allocated
                net = build_net(config)
            net.load_state_dict(phases[index], assign=True)
            nets.append(net)
        return cls(nets, card)


def _of_phase(stacked: Tensor, phase: Tensor) -> Tensor:
    return stacked[0] if len(stacked) == 1 else stacked.index_select(0, phase.long().view(1)).squeeze(0)


def _single_or_double(tensor: Tensor) -> Tensor:
    """In the precision that a network is computed in; the same tensor where it has that."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
