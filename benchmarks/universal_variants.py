"""What lets one schedule serve many kinds of trainings? Variants, each learned for the same time on the universal distribution.

Each is then judged on validation kinds, which nothing is learned from, beside cosine and linear decays with 5 % warm-up over a
grid of LRs. The gap is the mean over tasks of log((f + 0.05) / (best + 0.05)), f the calibrated validation loss at the end and
best that of the best of all rivals on that very task, an oracle. 0.05 keeps tasks that end near 0 from outvoting the others.

    python benchmarks/universal_variants.py --seconds 100 [--only absolute trend] [--out results/universal/variants-here.json]
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor

from mlrsnet import Gamma, LSTMNet
from mlrsnet.card import versions
from mlrsnet.horizon import HorizonTrainer, Rivals, Sampler, Task, Update
from mlrsnet.horizon.trainer import default_net
from mlrsnet.horizon.updates import State, find
from mlrsnet.lab.records import commit
from mlrsnet.lab.trainer import device_name
from mlrsnet.lab.universal import distribution
from mlrsnet.nets import KINDS, Cell

GRID = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
DECAYS: dict[str, dict[str, Any]] = {"cosine": {"warmup": 0.05}, "linear": {"warmup": 0.05}}
NEAR_0, LARGEST = 0.05, 9.0
FAST, SLOW = 0.02, 0.1
"""Parts of the horizon that the averages of `TrendNet` look back over."""


class TrendNet(LSTMNet):
    """An LSTM that is also told how the loss has moved: its trend, its noise and its first value.

    With l = log(loss) and averages over the last 2 % and 10 % of the horizon: trend = fast - slow, noise = deviation from fast.
    """

    def __init__(self, *sizes: int, **reading: Any) -> None:
        super().__init__(*sizes, **reading)
        self.cells[0] = Cell(len(self.inputs) + 3, self.hidden_size, self.layout)

    def initial_state(self, *batch: int) -> Tensor:
        """The LSTM's, and a layer more for the averages."""
        return self.out.weight.new_zeros(*batch, self.num_layers + 1, 2, self.hidden_size)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `ScheduleNet`."""
        known, before, first, fast, slow, noise = state[..., -1, 0, :6].unbind(-1)
        log, progress = features[..., 0].clamp(min=1e-4).log(), features[..., 1]
        begins, passed = known == 0, progress - before

        def averaged(old: Tensor, new: Tensor, window: float) -> Tensor:
            keep = torch.exp(-passed / window)
            return torch.where(begins, new, keep * old + (1 - keep) * new)

        first, fast, slow = torch.where(begins, log, first), averaged(fast, log, FAST), averaged(slow, log, SLOW)
        noise = averaged(noise, (log - fast) ** 2, SLOW)
        told = torch.stack((3 * (fast - slow), 3 * (noise + 1e-8).sqrt(), first.exp()), dim=-1)
        factor, memory = super().forward(torch.cat((features, told), dim=-1), state[..., :-1, :, :])
        kept = torch.stack((torch.ones_like(log), progress, first, fast, slow, noise), dim=-1)
        rest = torch.zeros_like(state[..., -1, 0, 6:])
        layer = torch.stack((torch.cat((kept, rest), dim=-1), torch.zeros_like(state[..., -1, 1, :])), dim=-2)
        return factor, torch.cat((memory, layer.unsqueeze(-3)), dim=-3)


KINDS["TrendNet"] = TrendNet


@dataclass(frozen=True)
class Relative:
    """alpha = r |w| / |d|: the network decides how far the weights move, in parts of their own length."""

    inner: Update
    scale: float = 0.02

    def begin(self, weights: Tensor) -> State:
        return self.inner.begin(weights)

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        before = weights.clone()
        self.inner.apply(weights, gradients, state, torch.ones_like(lr), weight_decay)
        step = before - weights
        length = before.norm(dim=1, keepdim=True) / (step.norm(dim=1, keepdim=True) + 1e-12)
        weights.copy_(before - lr * length * step)


def relative(task: Task) -> Task:
    return replace(task, optimizer=Relative(find(task.optimizer)))


@dataclass(frozen=True)
class Changed:
    """Another sampler's tasks, each changed."""

    inner: Sampler
    change: Callable[[Task], Task]

    def sample(self, seed: int, count: int) -> list[Task]:
        return [self.change(task) for task in self.inner.sample(seed, count)]


@dataclass(frozen=True)
class Variant:
    """What is learned."""

    about: str
    net: Callable[[], LSTMNet]
    gamma: Gamma
    change: Callable[[Task], Task] | None = None


def net(kind: type[LSTMNet] = LSTMNet, start: float = 0.25, **reading: Any) -> LSTMNet:
    """An LSTM of 16 cells that begins as a linear decay from `start`."""
    settings = {**default_net(16).config(), **reading}
    settings.pop("kind")
    torch.manual_seed(0)
    made = kind(settings.pop("hidden_size"), settings.pop("num_layers"), **settings)
    with torch.no_grad():
        made.out.bias.fill_(math.log(start / (1 - start)) / made.sharpness)
    return made


def fixed(value: float) -> Gamma:
    return Gamma("fixed", value=value)


VARIANTS = {
    "absolute": Variant(
        "loss / log(classes) and progress, gamma = 4, times 1 - momentum, 0.01 for Adam", net, fixed(4.0)
    ),
    "wide": Variant("the same with gamma = 20", lambda: net(start=0.05), fixed(20.0)),
    "trend": Variant("the trend, noise and first value of the loss beside it", lambda: net(TrendNet), fixed(4.0)),
    "no-loss": Variant("progress alone", lambda: net(inputs=("progress",)), fixed(4.0)),
    "no-progress": Variant(
        "the loss alone, and no anneal factor", lambda: net(inputs=("loss",), anneal="none"), fixed(4.0)
    ),
    "no-anneal": Variant("without the factor 1 - progress", lambda: net(anneal="none"), fixed(4.0)),
    "first-loss": Variant("loss / first loss", lambda: net(loss_scale="initial"), fixed(4.0)),
    "paper-gamma": Variant("the paper's gamma, from the first loss and the classes", lambda: net(start=0.5), Gamma()),
    "relative": Variant("alpha = r |w| / |d|, r up to 0.08", net, fixed(4.0), relative),
}


def gaps(fitness: list[float], best: list[float]) -> list[float]:
    return [math.log((min(f, LARGEST) + NEAR_0) / (b + NEAR_0)) for f, b in zip(fitness, best, strict=True)]


def summary(found: list[float]) -> dict[str, float]:
    worst = sorted(found)[-len(found) // 8 :]
    wins = mean(gap <= 0 for gap in found)
    return {"mean": mean(found), "median": median(found), "worst eighth": mean(worst), "at least as good": wins}


def learn(
    variant: Variant, train: Sampler, tasks: list[Task], best: list[float], words: argparse.Namespace
) -> list[Any]:
    """Comparisons at the beginning, halfway and at the end."""
    device, change = torch.device(words.device), variant.change
    trainer = HorizonTrainer(
        train if change is None else Changed(train, change),
        generations=10**6,
        net=variant.net(),
        gamma=variant.gamma,
        members=words.members,
        meta_lr=0.02,
        average=0.95,
        held_out_tasks=0,
        device=device,
    )
    rivals = Rivals(tasks if change is None else [change(task) for task in tasks], "calibrated", device, kinds={})
    rivals.found = {"none": torch.ones(len(tasks), 1)}  # the grid is trained once for all variants
    spent, lines = 0.0, []
    for part in (0.0, 0.5, 1.0):
        while spent < part * words.seconds:
            begin = time.perf_counter()
            trainer.step()
            spent += time.perf_counter() - begin
        compared = rivals.compare(trainer.number, trainer.schedule())
        line = {"generations": trainer.number, **summary(gaps(compared.learned, best)), "fitness": compared.learned}
        print({name: round(value, 4) for name, value in line.items() if name != "fitness"}, flush=True)
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0, help="of learning, for each variant")
    parser.add_argument("--members", type=int, default=32)
    parser.add_argument("--horizons", type=int, nargs=2, default=(100, 1000))
    parser.add_argument("--kinds", type=int, nargs=2, default=(32, 18), help="to learn from, to judge on")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    train, val = distribution(
        words.data, kinds=words.kinds[0], validation=words.kinds[1], horizons=tuple(words.horizons)
    )
    tasks = [task for number, kind in enumerate(val.kinds) for task in kind.sample(number, 2)]
    grids = Rivals(tasks, "calibrated", words.device, grid=GRID, kinds=DECAYS).grids()
    best = torch.cat(list(grids.values()), dim=1).min(dim=1).values.tolist()
    record: dict[str, Any] = {
        "versions": versions(),
        "machine": {"system": platform.platform(), "device": device_name(torch.device(words.device))},
        "commit": commit(),
        "settings": {
            "seconds": words.seconds,
            "members": words.members,
            "horizons": words.horizons,
            "kinds": words.kinds,
        },
        "tasks": [f"{t.data.name}, {t.optimizer}, batch {t.batch_size}, {t.total_steps} steps" for t in tasks],
        "one LR for all": {
            f"{kind} {lr:g}": summary(gaps(found[:, place].tolist(), best))
            for kind, found in grids.items()
            for place, lr in enumerate(GRID)
        },
        "variants": {},
    }
    for name in words.only:
        print(name, VARIANTS[name].about, flush=True)
        lines = learn(VARIANTS[name], train, tasks, best, words)
        record["variants"][name] = {"about": VARIANTS[name].about, "comparisons": lines}
        if words.out:
            words.out.parent.mkdir(parents=True, exist_ok=True)
            words.out.write_text(json.dumps(record, indent=1) + "\n")
    for name, found in record["one LR for all"].items():
        print(name, {key: round(value, 4) for key, value in found.items()})


if __name__ == "__main__":
    main()
