"""A schedule: one network per phase of training, and a card. Which phase when; simulate; save and load.

Algorithm 2 of the paper: of all networks phi_s that meta-training went through, k are kept (phi_{T/3}, phi_{2T/3},
phi_T); a new training of any length uses the l-th during its l-th k-th. The memory is carried across phases.
"""

import copy
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlrsnet import _check, _plotting
from mlrsnet._files import hub, names, official, storage
from mlrsnet._files.storage import ScheduleError
from mlrsnet.card import Card, facts, result_lines
from mlrsnet.nets import KINDS, ScheduleNet, build_net, unroll


class Schedule:
    """Networks for the phases of a training, with the card that says how to use them.

    The networks are copied, to the CPU, and frozen. All phases share one description (kind, sizes, inputs, loss scale...).

    Args:
        phases: one network for each equal part of training, in order; a single network is one phase.
        card: provenance and the rule for the range.

    >>> from mlrsnet import LSTMNet, Schedule
    >>> schedule = Schedule([LSTMNet(), LSTMNet(), LSTMNet()])
    >>> schedule.simulate([2.3, 1.7, 1.2, 0.9, 0.5, 0.4], gamma=0.67).shape
    (6,)
    """

    def __init__(self, phases: ScheduleNet | Sequence[ScheduleNet], card: Card | None = None) -> None:
        nets = list(phases) if isinstance(phases, Sequence) else [phases]
        if not nets or not all(isinstance(net, ScheduleNet) for net in nets):
            raise TypeError(f"phases must be one or more schedule networks such as LSTMNet(), got {phases!r}")
        if any(net.config() != nets[0].config() for net in nets):
            raise ValueError(f"all phases must have one description, got {[net.config() for net in nets]}")
        for index, net in enumerate(nets):
            for name, tensor in net.state_dict().items():
                if not torch.isfinite(tensor).all():
                    raise ScheduleError(
                        f"{name} of phase {index} is not finite: meta-training diverged or the file is damaged"
                    )
        self.phases = tuple(copy.deepcopy(net).cpu().requires_grad_(False) for net in nets)
        self.card = card or Card()

    @property
    def num_phases(self) -> int:
        """How many equal parts of training have a network of their own."""
        return len(self.phases)

    @property
    def net(self) -> ScheduleNet:
        """The first phase's network, for what all phases share."""
        return self.phases[0]

    def loss_divisor(self, initial_loss: float, num_classes: int | None, name: str = "the first loss") -> float:
        """What the loss is divided by before the network sees it; `name` is what an error calls `initial_loss`.

        An untrained classifier's loss is about log(classes), so the first loss stands in for a missing `num_classes`.
        """
        if self.net.loss_scale == "none":
            return 1.0
        if self.net.loss_scale == "log_classes" and num_classes is not None:
            return float(np.log(num_classes))
        return _check.positive(
            name,
            initial_loss,
            "this schedule divides losses by it; pass initial_loss= a typical first loss",
        )

    def simulate(self, losses: Sequence[float], gamma: float = 1.0, *, num_classes: int | None = None) -> np.ndarray:
        """The LR for each loss, the phases spread over `len(losses)`.

        Args:
            losses: finite training losses, one a step.
            gamma: the range of the LR; the default gives the bare factors.
            num_classes: for schedules that divide the loss by log(classes); else the first loss stands in.
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
        scaled = (values / self.loss_divisor(float(values[0]), num_classes)).to(next(self.net.parameters()))
        return gamma * unroll(self.phases, scaled).double().numpy()

    def choose(self, num_phases: int) -> "Schedule":
        """So many of the networks, those at the end of each equal part: all that a shorter meta-training would have kept.

        >>> from mlrsnet import LSTMNet, Schedule
        >>> Schedule([LSTMNet() for _ in range(6)]).choose(3).num_phases
        3
        """
        count = _check.whole_number("num_phases", num_phases)
        if self.num_phases % count:
            raise ValueError(f"num_phases must divide the schedule's {self.num_phases}, got {num_phases}")
        step = self.num_phases // count
        return Schedule(self.phases[step - 1 :: step], self.card)

    def for_text(self) -> "Schedule":
        """The paper's variant for language models: the network reads loss / log(vocabulary), gamma the perplexity."""
        config = self.net.config() | {"loss_scale": "log_classes"}
        gamma = self.card.gamma
        if gamma.needs_classes:
            gamma = replace(gamma, statistic="perplexity")
        return self._like(config, self._tensors(), replace(self.card, gamma=gamma, loss_range=None))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, atomically; of networks that `load` can build again, not of classes of your own."""
        if type(self.net) is not KINDS.get(self.net.config()["kind"]):
            raise ScheduleError(
                f"networks must be one of {', '.join(KINDS)} to be saved, got {type(self.net).__name__}, which no file can bring "
                "back: use it from memory, or save its state_dict() yourself"
            )
        storage.write(path, self._description(), self._tensors())

    @classmethod
    def load(cls, schedule: str | os.PathLike[str]) -> "Schedule":
        """Read a schedule. A file that `save` did not write gets one clear `ScheduleError`, and nothing is executed.

        Args:
            schedule: a name out of `mlrsnet.list_schedules()`, the path of a file, or `hf://owner/name` on the Hub.

        >>> Schedule.load("universal").num_phases
        1
        """
        path = names.find(schedule)
        description, tensors = storage.read(path)
        try:
            card = Card.from_dict(description["card"])
            return cls._like(description["net"], tensors, card)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
            raise ScheduleError(f"{path} does not hold a valid schedule ({error}): save it again") from None

    @classmethod
    def from_official(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        layout: str = "official-test",
        name: str = "official",
    ) -> "Schedule":
        """The authors' checkpoints as a schedule, one phase a file.

        Args:
            paths: one `.pth` file, or several in the order of training.
            layout: the published files belong to the meta-test network (`official-test`). Their meta-train network
                uses the same keys with another gate order: files saved by it need `official-train`.
            name: goes into the card.
        """
        return cls(official.read_nets(paths, layout), replace(official.CARD, name=name))

    def push_to_hub(
        self,
        repository: str,
        *,
        license: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        message: str | None = None,
    ) -> str:
        """Share it on the Hugging Face Hub, its card as the model card; needs huggingface_hub (`mlrsnet[hub]`).

        Args:
            repository: `owner/name`; made if it is not there.
            license: the Hub's identifier of a licence, such as `mit`.
            private: whether a new repository is; the owner's own default if None.
            token: of an account that may write there; the one you are logged in with if None.
            message: of the commit.

        Returns:
            The address of what was pushed, `hf://owner/name@commit`, for `mlrsnet.load` and `LearnedLR`.
        """
        text = self.model_card(repository, license=license)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / hub.FILE
            self.save(path)
            message = message or f"Add the schedule {self.card.name}"
            return hub.push(repository, path, text, private=private, token=token, message=message)

    def model_card(self, repository: str, *, license: str | None = None) -> str:
        """The README.md that `push_to_hub` writes: the card, and how to use it from `repository`."""
        return hub.model_card(
            self.card,
            self.net.config(),
            phases=self.num_phases,
            digest=self.fingerprint(),
            repository=repository,
            license=license,
        )

    def plot(self, path: str | os.PathLike[str] | None = None, *, max_loss: float = 3.0, ax: Any = None) -> Any:
        """Draw where the LR settles for each loss, one curve a phase; needs matplotlib (`mlrsnet[lab]`).

        Args:
            path: where to write the picture; nothing is written without.
            max_loss: right end of the axis, in losses as the network sees them.
            ax: matplotlib axes to draw into.

        Returns:
            The matplotlib axes.
        """
        return _plotting.plot_phases(self.phases, self.card.name, path, max_loss=max_loss, ax=ax)

    def plot_map(self, path: str | os.PathLike[str] | None = None, *, max_loss: float = 3.0, ax: Any = None) -> Any:
        """Draw the LR over loss and progress, each loss held from the first step on: does the schedule read the loss?

        Args:
            path: where to write the picture; nothing is written without.
            max_loss: upper end of the axis, in losses as the network sees them.
            ax: matplotlib axes to draw into.

        Returns:
            The matplotlib axes.
        """
        return _plotting.plot_map(self.phases, self.card.name, path, max_loss=max_loss, ax=ax)

    def fingerprint(self) -> str:
        """A digest of everything that decides an LR: weights, networks and the rule for the range."""
        return storage.digest({"net": self.net.config(), "gamma": self.card.to_dict()["gamma"]}, self._tensors())

    def describe(self) -> str:
        """The card in words, one field per line. Empty fields are left out.

        >>> from mlrsnet import LSTMNet, Schedule
        >>> print(Schedule(LSTMNet()).describe().splitlines()[0])
        name         unnamed
        """
        card, width = self.card, 12
        fields = {
            "name": card.name,
            "description": card.description,
            **facts(card, self.net.config(), self.num_phases),
            "loss range": f"{card.loss_range[0]:g} to {card.loss_range[1]:g}" if card.loss_range else "",
            "results": f"\n{'':{width + 1}}".join(result_lines(card.results)),
            "digest": self.fingerprint()[:16],
        }
        return "\n".join(f"{name:{width}} {value}" for name, value in fields.items() if value)

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
        """Build from a description and `phase{i}.name` tensors, checking every name and shape."""
        phases: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            match = re.fullmatch(r"phase(\d+)\.(.+)", key)
            if match is None or not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
                raise ScheduleError(f"{key} of {tensor.dtype} is not a weight of a phase's network")
            phases.setdefault(int(match[1]), {})[match[2]] = tensor
        if sorted(phases) != list(range(len(phases))) or not phases:
            raise ScheduleError(f"phases must be numbered from 0 without gaps, got {sorted(phases)}")
        if config.get("num_layers", 1) > len(tensors):
            raise ScheduleError(f"num_layers is {config['num_layers']} but there are only {len(tensors)} tensors")
        nets = []
        for index in sorted(phases):
            with torch.device("meta"):  # shapes are compared before anything is allocated
                net = build_net(config)
            net.load_state_dict(phases[index], assign=True)
            nets.append(net)
        return cls(nets, card)
