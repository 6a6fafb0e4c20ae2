"""Sequences of LRs to compare a core with: the same cases, played by the core of commit 239a254, are in `tests/golden/`.

239a254 is the last commit before the core was rebuilt around sensors. `tests/test_lockstep.py` plays the cases with today's core.

    git worktree add ../old 239a254
    python -m tools.golden ../old/src        # writes tests/golden/*.npz with the core that lies there

Two kinds of cases. The paper's schedules read losses only: losses in, LRs out. The default looks at weights, so it watches a
training whose weights and gradients anybody can make again: both come from numpy's `RandomState`, whose stream never changes, by
a few sums and products in double precision. Gradients do not depend on weights, so two cores that differ by rounding see the
same training for as long as you like. The old core runs with tensor LRs, and so measures every step.
"""

import argparse
import copy
import importlib
import json
import math
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Muon, Optimizer, RMSprop

FOLDER = Path(__file__).parents[1] / "tests" / "golden"
OFFICIAL = "MLRSNET_OFFICIAL"
"""The environment variable with the folder of the authors' checkpoints."""

OLD_NAMES = {"universal": "universal-2", "universal-lstm": "universal"}
"""Schedules by the names that they had then."""

Event = tuple[int, str, Any]
"""Before which step, what, and with which argument."""

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "sgd-decay": partial(SGD, weight_decay=5e-3),
    "momentum": partial(SGD, momentum=0.9),
    "momentum-decay": partial(SGD, momentum=0.9, weight_decay=5e-3),
    "nesterov": partial(SGD, momentum=0.9, nesterov=True),
    "adam": Adam,
    "adamw": partial(AdamW, weight_decay=0.1),
    "rmsprop": RMSprop,
    "muon": partial(Muon, weight_decay=0.1),
}


def core(module: str) -> Any:
    """A module of the core that is played: the first one on the path."""
    return importlib.import_module(f"mlrsnet.{module}")


def load(name: str) -> Any:
    """A shipped schedule, or the default with the law that it had then."""
    module = core("schedule")
    if name == "universal" and not hasattr(module, "DEFAULT"):
        default = core("default")
        return default.Default(replace(default.Size.fixed(0.13), steps=-0.1, parameters=-0.19, depth=-1.2))
    return module.Schedule.load(OLD_NAMES.get(name, name) if hasattr(module, "DEFAULT") else name)


# The paper's schedules


@dataclass(frozen=True)
class Paper:
    """A training as a network's schedule sees it: one loss a step.

    losses: which of `LOSSES`. events: anneal, extend. options: of `LearnedLR`.
    """

    schedule: str
    optimizer: str = "sgd"
    losses: str = "falling"
    total_steps: int = 40
    steps: int = 40
    events: tuple[Event, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def untrained(kind: str, phases: int, gamma: dict[str, Any] | None = None, seed: int = 0, **settings: Any) -> Any:
    """A schedule of some networks whose weights are drawn from (-0.5, 0.5), so that they react to the loss."""
    nets, drawn = [], np.random.RandomState(seed)
    for _ in range(phases):
        net = getattr(core("nets"), kind)(**settings)
        for weight in net.parameters():
            weight.data = torch.from_numpy(drawn.uniform(-0.5, 0.5, tuple(weight.shape))).to(weight)
        nets.append(net)
    card = core("card").Card()
    if gamma:
        card = type(card).from_dict({**card.to_dict(), "gamma": {"statistic": "loss", "value": None, **gamma}})
    return core("schedule").Schedule(nets, card)


def authors(numbers: Sequence[int], gamma: str) -> Any:
    """The authors' checkpoints."""
    paths = [Path(os.environ[OFFICIAL]) / f"mlr_snet_{number}.pth" for number in numbers]
    return core("schedule").Schedule.from_official(paths, gamma=gamma)


TREND: dict[str, Any] = {
    "hidden_size": 12,
    "num_layers": 2,
    "loss_scale": "initial",
    "sharpness": 2.0,
    "anneal": "linear",
}
SCHEDULES: dict[str, Callable[[], Any]] = {
    "lstm": partial(untrained, "LSTMNet", 1),
    "lstm-3": partial(untrained, "LSTMNet", 3),
    "lstm-3-per-phase": partial(untrained, "LSTMNet", 3, {"policy": "per-phase"}),
    "lstm-2-layers": partial(untrained, "LSTMNet", 2, hidden_size=8, num_layers=2, layout="official-train"),
    "lstm-text": lambda: untrained("LSTMNet", 2, hidden_size=20).for_text(),
    "mlp": partial(untrained, "MLPNet", 2),
    "mlp-initial": partial(untrained, "MLPNet", 1, {"policy": "fixed", "value": 0.5}, loss_scale="initial"),
    "trend": partial(untrained, "TrendNet", 1, {"policy": "fixed", "value": 2.0}, **TREND),
    "universal-lstm": partial(load, "universal-lstm"),
    "cifar10-resnet18": partial(load, "cifar10-resnet18"),
    "cifar10-resnet18-text": lambda: load("cifar10-resnet18").for_text(),
    "cifar10-patches": partial(load, "cifar10-patches"),
    "ptb-lstm": partial(load, "ptb-lstm"),
    "official": partial(authors, [1, 100, 200], "initial"),
    "official-per-phase": partial(authors, [1, 100, 200], "per-phase"),
    "official-200": partial(authors, [200], "initial"),
}


def losses(kind: str, steps: int, first: float = math.log(10)) -> np.ndarray:
    """Training losses that fall with noise.

    falling: no more than that. broken: the 1st and 8th are NaN, the 15th and 16th infinite. wild: one is ten times as high, one 0,
    one negative. rising: they begin to rise after half of the training, as in one that blows up.
    """
    t, noise = np.arange(steps), np.random.RandomState(1).uniform(-1, 1, steps)
    found = first * (0.15 + 0.85 / (1 + t / 12) + 0.08 * noise / (1 + t / 30))
    if kind == "broken":
        found[[0, 7]], found[[14, 15]] = math.nan, math.inf
    if kind == "wild":
        found[10], found[20], found[30] = 10 * first, 0.0, -0.5
    if kind == "rising":
        found[steps // 2 :] *= 1 + 0.1 * (t[steps // 2 :] - steps // 2)
    return found


def paper_cases() -> dict[str, Paper]:
    """All but the authors'."""
    ours = [name for name in SCHEDULES if not name.startswith("official")]
    text = {name: {"num_classes": 10_000} for name in ("ptb-lstm", "lstm-text", "cifar10-resnet18-text")}
    few, all_ = ("sgd", "adamw"), ("sgd", "momentum", "nesterov", "adam", "adamw", "muon")
    found = {
        f"{name}/{optimizer}": Paper(name, optimizer, "broken", options=text.get(name, {"num_classes": 10}))
        for name in ours
        for optimizer in (all_ if name in ("lstm-3", "universal-lstm", "ptb-lstm") else few)
    }
    for name in ("lstm-3", "lstm-3-per-phase", "mlp", "trend", "universal-lstm", "cifar10-resnet18", "cifar10-patches"):
        usual = Paper(name, losses="broken", options={"num_classes": 10})
        found |= {
            f"{name}/anneal": replace(usual, total_steps=100, events=((20, "anneal", 15),)),
            f"{name}/anneal twice": replace(usual, events=((10, "anneal", 9), (17, "anneal", 20))),
            f"{name}/extend": replace(usual, total_steps=30, events=((20, "extend", 60),)),
            f"{name}/past the end": replace(usual, total_steps=30),
            f"{name}/wild": replace(usual, losses="wild"),
        }
    given = {"num_classes": 10, "initial_loss": 2.5, "scale": 3.0, "min_lr": 0.05, "max_lr": 0.6}
    found |= {f"{name}/given": Paper(name, losses="broken", options=given) for name in ("lstm-3", "universal-lstm")}
    found["universal-lstm/open"] = replace(found["universal-lstm/sgd"], total_steps=0, events=((25, "anneal", 15),))
    return found


def official_cases() -> dict[str, Paper]:
    """Those of the authors' checkpoints."""
    usual = Paper("", losses="broken", options={"num_classes": 10})
    names = [name for name in SCHEDULES if name.startswith("official")]
    found = {
        f"{name}/{one}": replace(usual, schedule=name, optimizer=one) for name in names for one in ("sgd", "adamw")
    }
    return found | {
        f"{name}/extend": replace(usual, schedule=name, total_steps=30, events=((20, "extend", 60),)) for name in names
    }


def in_double(schedule: Any) -> Any:
    """The same networks in double precision: then two ways to write one equation agree to 1e-15, not to 2e-6."""
    return type(schedule)([copy.deepcopy(net).double() for net in schedule.phases], schedule.card)


def play_paper(
    case: Paper, told: Iterable[float], lr: Any = 0.1, prepare: Callable[[Any], Any] = in_double
) -> np.ndarray:
    """The LR of every step. `lr`: what the optimizer begins with, a float or a tensor. `prepare`: what is done to the schedule."""
    weight = Parameter(torch.ones(3, 2, device=lr.device if isinstance(lr, Tensor) else None))
    weight.grad = torch.ones_like(weight)
    optimizer = OPTIMIZERS[case.optimizer]([weight], lr=lr)
    make = core("scheduler").LearnedLR
    schedule = make(
        optimizer, prepare(SCHEDULES[case.schedule]()), total_steps=case.total_steps or None, **case.options
    )
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of losses that are not finite, or far outside
        for step, loss in enumerate(told):
            for _, what, argument in (one for one in case.events if one[0] == step):
                getattr(schedule, what)(argument)
            schedule.step(float(loss))
            optimizer.step()
            found.append(float(optimizer.param_groups[0]["lr"]))
    return np.array(found)


# The default


@dataclass(frozen=True)
class Watched:
    """A training as the default sees it.

    shapes: of the weights. starts: how they begin, see `start`. optimizer: of `OPTIMIZERS`. lrs: of parameter groups; every weight
    goes to the next one in turn. parts: micro-batches of a step. dtype: of the weights. size: of all gradients. jumps: whether
    some gradients are six times as large. rest: weights that have a gradient in every third step only. sparse: weights whose
    gradients are sparse. losses: which of `losses`. events: anneal, extend, validate, resume, group (shape of a new one).
    """

    shapes: tuple[tuple[int, ...], ...] = ((24, 12), (24,), (24, 24), (24,), (10, 24), (10,))
    starts: tuple[str, ...] = ()
    optimizer: str = "sgd"
    lrs: tuple[float, ...] = (0.1,)
    total_steps: int = 60
    steps: int = 60
    parts: int = 1
    dtype: torch.dtype = torch.float32
    size: float = 1.0
    jumps: bool = True
    rest: tuple[int, ...] = ()
    sparse: tuple[int, ...] = ()
    losses: str = "falling"
    events: tuple[Event, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


CONV = ((8, 3, 3, 3), (8,), (8,), (16, 8, 3, 3), (16,), (16,), (10, 16), (10,))
NORMS = ("", "gain", "zero", "", "gain", "zero", "", "zero")
LARGE = ((80, 100), (80,), (80, 80), (80,), (3, 80), (3,))


def watched_cases() -> dict[str, Watched]:
    """All."""
    usual = Watched()
    matrices = replace(usual, shapes=((24, 12), (24, 24), (10, 24)))
    text = replace(usual, shapes=((60, 16), (16, 16), (16,), (60, 16)), starts=("normal",), optimizer="adamw")
    found = {name: replace(usual, optimizer=name) for name in OPTIMIZERS if name != "muon"}
    found |= {
        "muon": replace(matrices, optimizer="muon"),
        "large gradients": replace(usual, size=300.0),
        "small gradients": replace(usual, size=1e-4, optimizer="momentum"),
        "rising loss": replace(usual, losses="rising"),
        "one loss as high as ten": replace(usual, losses="wild", steps=29),
        "losses of 0 and below": replace(usual, losses="wild"),
        "a convolutional network with norms": replace(usual, shapes=CONV, starts=NORMS, optimizer="momentum"),
        "a trained network": replace(
            usual, shapes=CONV, starts=("", "used", "zero", "", "used", "zero", "", "zero"), optimizer="adamw"
        ),
        "a deep network": replace(usual, shapes=((16, 16), (16,)) * 8, optimizer="nesterov"),
        "vectors only": replace(usual, shapes=((40,), (10,)), optimizer="adamw"),
        "weights that begin at 0": replace(usual, starts=("", "zero", "", "zero", "zero", "zero"), optimizer="adam"),
        "long embeddings": text,
        "sparse gradients": replace(text, optimizer="sgd", sparse=(0,)),
        "weights that rest": replace(usual, rest=(2, 3), optimizer="momentum"),
        "bfloat16": replace(usual, dtype=torch.bfloat16, optimizer="adamw", jumps=False),
        "groups": replace(usual, lrs=(0.1, 0.02, 0.05), optimizer="adamw"),
        "a group that does not move": replace(usual, lrs=(0.1, 0.0, 0.05), optimizer="momentum"),
        "a group that comes later": replace(usual, optimizer="adamw", events=((25, "group", (12, 24)),)),
        "accumulation": replace(usual, parts=4, optimizer="momentum"),
        "anneal": replace(usual, optimizer="adamw", events=((30, "anneal", 15),)),
        "extend": replace(usual, optimizer="adamw", total_steps=40, events=((35, "extend", 80),)),
        "open": replace(usual, optimizer="momentum", total_steps=0, events=((40, "anneal", 20),)),
        "past the end": replace(usual, optimizer="adamw", total_steps=45),
        "validation": replace(
            usual,
            optimizer="adamw",
            events=tuple(
                (t, "validate", v) for t, v in zip(range(5, 45, 5), (2, 1.5, 1.6, 1.7, 1.5, 1.4, 1.3, 1.6), strict=True)
            ),
        ),
        "limits": replace(usual, optimizer="adamw", options={"scale": 2.0, "min_lr": 1e-3, "max_lr": 4e-3}),
    }
    for name in ("sgd", "momentum", "adamw"):
        found[f"resume, {name}"] = replace(usual, optimizer=name, events=((20, "resume", None), (45, "resume", None)))
        found[f"sampled, {name}"] = replace(usual, shapes=LARGE, optimizer=name)
    found["sampled, muon"] = replace(matrices, shapes=LARGE[::2], optimizer="muon")
    return found


def start(kind: str, shape: Sequence[int], drawn: np.random.RandomState) -> np.ndarray:
    """A weight at the start: as torch's layers begin, `normal` as torch's embeddings do but for their tails, all `zero`, the
    `gain` of a new norm, or a `used` one.
    """
    random = drawn.uniform(-1, 1, tuple(shape))
    fan_in = math.prod(shape[1:]) if len(shape) > 1 else shape[0]
    return {
        "": random / math.sqrt(fan_in),
        "normal": random * math.sqrt(3),
        "zero": 0 * random,
        "gain": 0 * random + 1,
        "used": 1 + 0.2 * random,
    }[kind]


class Training:
    """The weights and gradients of a case, made again by anybody, and an optimizer over them."""

    def __init__(self, case: Watched, lr: Callable[[float], Any], device: str = "cpu") -> None:
        self.case, self.lr, self.device, self.step = case, lr, device, 0
        self.start, self.noise = np.random.RandomState(2), np.random.RandomState(3)
        starts = (*case.starts, *[""] * len(case.shapes))
        self.weights = [self._weight(kind, shape) for kind, shape in zip(starts, case.shapes, strict=False)]
        self.bias = [self.start.uniform(-1, 1, shape) for shape in case.shapes]
        self.optimizer = self._optimizer(self.weights)

    def backward(self) -> None:
        """The gradients of the next step: a direction that stays and noise, smaller later on, at times six times as large."""
        case, t = self.case, self.step
        size = case.size * (1 + (t * 7 % 13) / 13) / (1 + t / 40) * (6 if case.jumps and t % 31 == 20 else 1)
        for place, (weight, bias) in enumerate(zip(self.weights, self.bias, strict=True)):
            parts = [self.noise.uniform(-1, 1, bias.shape) for _ in range(case.parts)]
            gradient = torch.from_numpy(size * (0.3 * bias + sum(parts) / case.parts)).to(weight)
            weight.grad = None if place in case.rest and t % 3 else gradient
            if place in case.sparse:
                gradient[1::2] = 0
                weight.grad = gradient.to_sparse(1)
        self.step += 1

    def add_group(self, shape: tuple[int, ...]) -> None:
        """One more weight, in a group of its own, at half of the first LR."""
        weight = self._weight("", shape)
        self.weights.append(weight)
        self.bias.append(self.start.uniform(-1, 1, shape))
        self.optimizer.add_param_group({"params": [weight], "lr": self.lr(self.case.lrs[0] / 2)})

    def resume(self) -> None:
        """Go on with an optimizer and weights that were saved and loaded."""
        saved = self.optimizer.state_dict()
        self.weights = [Parameter(weight.detach().clone()) for weight in self.weights]
        self.optimizer = self._optimizer(self.weights)
        self.optimizer.load_state_dict(saved)

    def _weight(self, kind: str, shape: tuple[int, ...]) -> Parameter:
        return Parameter(torch.from_numpy(start(kind, shape, self.start)).to(self.device, self.case.dtype))

    def _optimizer(self, weights: Sequence[Tensor]) -> Optimizer:
        lrs = self.case.lrs
        groups = [{"params": list(weights[place :: len(lrs)]), "lr": self.lr(lr)} for place, lr in enumerate(lrs)]
        return OPTIMIZERS[self.case.optimizer](groups, lr=self.lr(lrs[0]))


def play_watched(case: Watched, told: Iterable[float], lr: Callable[[float], Any], device: str = "cpu") -> np.ndarray:
    """(steps, groups) LRs. `lr` makes what the optimizer begins with, floats or tensors."""
    training = Training(case, lr, device)
    make = partial(core("scheduler").LearnedLR, schedule=load("universal"), total_steps=case.total_steps or None)
    schedule = make(training.optimizer, **case.options)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step, loss in enumerate(told):
            for _, what, argument in (one for one in case.events if one[0] == step):
                if what == "resume":
                    saved = schedule.state_dict()
                    training.resume()
                    schedule = make(training.optimizer, **case.options)
                    schedule.load_state_dict(saved)
                elif what == "group":
                    training.add_group(argument)
                else:
                    getattr(schedule, what)(argument)
            training.backward()
            for part in range(case.parts):
                schedule.observe(float(loss) * (1 + 0.1 * (part - (case.parts - 1) / 2)))
            schedule.step()
            training.optimizer.step()
            found.append([float(group["lr"]) for group in training.optimizer.param_groups])
    width = len(found[-1])
    return np.array([row + [math.nan] * (width - len(row)) for row in found])


# The files


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder src of a checkout of 239a254")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.source.resolve()))
    torch.set_num_threads(1)
    about = {"core": "239a254", "torch": torch.__version__, "numpy": np.__version__, "machine": platform.machine()}
    for name, cases in (("paper", paper_cases()), ("official", official_cases())):
        if name == "paper" or OFFICIAL in os.environ:
            told = {kind: losses(kind, 40) for kind in ("falling", "broken", "wild")}
            played = {key: play_paper(case, told[case.losses][: case.steps]) for key, case in cases.items()}
            write(arguments.out / f"{name}.npz", about, told, played)
    told = {kind: losses(kind, 60) for kind in ("falling", "wild", "rising")}
    played = {
        key: play_watched(case, told[case.losses][: case.steps], torch.tensor).astype(np.float32)
        for key, case in watched_cases().items()
    }
    write(arguments.out / "default.npz", about, told, played)


def write(path: Path, about: dict[str, str], told: dict[str, np.ndarray], played: dict[str, np.ndarray]) -> None:
    """One file: losses by their kind, LRs by case."""
    named = {f"losses/{kind}": one for kind, one in told.items()} | {f"lrs/{key}": one for key, one in played.items()}
    np.savez_compressed(path, allow_pickle=False, about=np.array(json.dumps(about)), **named)
    print(f"{path}: {len(played)} cases, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
