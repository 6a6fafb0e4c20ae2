"""What lets one schedule serve many kinds of trainings? Variants, each learned for the same number of generations.

Each is judged on validation kinds, which nothing is learned from, beside cosine and linear decays with 5 % warm-up over a grid of
LRs. The gap is the mean over tasks of log((f + 0.05) / (best + 0.05)): f is the calibrated validation loss at the end, best that
of the best rival on the same task, an oracle. The 0.05 keeps tasks that end near 0 from dominating the mean.

    python -m experiments.universal_lstm_variants --generations 100 [--only absolute trend]
        [--out results/universal_lstm/variants-here.json]

With `--processes` the variants learn at the same time, each in its own process.
"""

import argparse
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from experiments import markdown, results
from mlrsnet.card import Card, versions
from mlrsnet.nets import LSTMNet, TrendNet
from mlrsnet.ranges import Fixed, Gamma, Range
from mlrsnet.schedule import Schedule
from mlrsnet_lab.devices import device_name
from mlrsnet_lab.horizon import Compute, Evolution, HeldOut, HorizonTrainer, Sampler, Tasks
from mlrsnet_lab.horizon.comparison import log_gaps
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.records import commit
from mlrsnet_lab.universal import distribution

GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
DECAYS: dict[str, dict[str, Any]] = {"cosine": {"warmup": 0.05}, "linear": {"warmup": 0.05}}


@dataclass(frozen=True)
class Variant:
    """What is learned."""

    about: str
    net: Callable[[], LSTMNet]
    gamma: Range


def net(kind: type[LSTMNet] = LSTMNet, start: float = 0.25, **reading: Any) -> LSTMNet:
    """An LSTM of 16 cells that begins as a linear decay from `start`."""
    settings = {**first_net(16).config(), **reading}
    settings.pop("kind")
    torch.manual_seed(0)
    made = kind(settings.pop("hidden_size"), settings.pop("num_layers"), **settings)
    with torch.no_grad():
        made.out.bias.fill_(math.log(start / (1 - start)) / made.sharpness)
    return made


VARIANTS = {
    "absolute": Variant(
        "loss / log(classes) and progress, gamma = 4, times 1 - momentum, 0.01 for Adam", net, Fixed(4.0)
    ),
    "wide": Variant("the same with gamma = 20", lambda: net(start=0.05), Fixed(20.0)),
    "trend": Variant(
        "gamma = 20, and level, trend, noise and first value of the loss", lambda: net(TrendNet, 0.05), Fixed(20.0)
    ),
    "first-loss": Variant("loss / first loss", lambda: net(loss_scale="initial"), Fixed(4.0)),
    "paper-gamma": Variant("the paper's gamma, from the first loss and the classes", lambda: net(start=0.5), Gamma()),
    "no-loss": Variant("progress alone", lambda: net(inputs=("progress",)), Fixed(4.0)),
    "no-progress": Variant(
        "the loss alone, and no anneal factor", lambda: net(inputs=("loss",), anneal="none"), Fixed(4.0)
    ),
    "no-anneal": Variant("without the factor 1 - progress", lambda: net(anneal="none"), Fixed(4.0)),
}


def table() -> list[str]:
    """Mean and median gap before and after learning; and of one LR for all trainings.

    `relative` and `running-loss` are in the record, but their code is gone.
    """
    record = results.data("universal_lstm/variants-h200.json")
    lines = []
    for name, variant in record["variants"].items():
        found = {line["generations"]: _both(line) for line in variant["comparisons"]}
        lines.append([name, variant["about"].replace("|", r"\|"), found[0], found.get(25, "")])
    for name in ("linear 0.3", "linear 1", "linear 3"):
        lines.append([name, "one LR for all, 5 % warm-up", _both(record["one LR for all"][name]), ""])
    heads = ["variant", "reads, and its range", "mean, median gap before learning", "after 25 generations"]
    return markdown.table(heads, lines)


def _both(line: dict[str, float]) -> str:
    return f"{line['mean']:.3f}, {line['median']:.3f}"


def summary(found: list[float]) -> dict[str, float]:
    """Of gaps."""
    worst = sorted(found)[-len(found) // 8 :]
    wins = mean(gap <= 0 for gap in found)
    return {"mean": mean(found), "median": median(found), "worst eighth": mean(worst), "at least as good": wins}


def learn(variant: Variant, train: Sampler, held_out: HeldOut, words: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Comparisons at the start and every few generations, until the generations or the seconds are used up."""
    trainer = HorizonTrainer(
        Tasks(train, words.tasks, held_out=0),
        Schedule(variant.net(), Card(gamma=variant.gamma)),
        Evolution(10**6, words.members, meta_lr=0.02, average=0.95),  # no decay: any of them could be the last
        held_out.run,
    )
    best = torch.cat(list(held_out.grids().values()), dim=1).min(dim=1).values.tolist()
    mine = HeldOut(held_out.tasks, run=held_out.run, kinds={})  # the grid is trained once for all variants
    begin = time.perf_counter()
    while True:
        compared = mine.compare(trainer.number, trainer.schedule())
        known = {"generations": trainer.number, "seconds": round(time.perf_counter() - begin, 1)}
        yield {**known, **summary(log_gaps(compared.learned, best)), "fitness": compared.learned}
        for _ in range(words.every):
            if trainer.number >= words.generations or time.perf_counter() - begin > words.seconds:
                return
            trainer.step()


def measure(words: argparse.Namespace) -> dict[str, Any]:
    """The variants, one after another."""
    kinds, horizons = words.kinds, tuple(words.horizons)
    train, val = distribution(words.data, kinds=kinds[0], validation=kinds[1], horizons=horizons)
    tasks = [task for number, kind in enumerate(val.kinds) for task in kind.sample(number, 2)]
    held_out = HeldOut(tasks, run=Compute(torch.device(words.device)), grid=GRID, kinds=DECAYS)
    grids = held_out.grids()
    best = torch.cat(list(grids.values()), dim=1).min(dim=1).values.tolist()
    settings = ("generations", "tasks", "members", "horizons", "kinds")
    record: dict[str, Any] = {
        "versions": versions(),
        "machine": {"system": platform.platform(), "device": device_name(torch.device(words.device))},
        "commit": commit(),
        "settings": {name: getattr(words, name) for name in settings},
        "tasks": [f"{t.data.name}, {t.optimizer}, batch {t.batch_size}, {t.total_steps} steps" for t in tasks],
        "best": best,
        "one LR for all": {
            f"{kind} {lr:g}": summary(log_gaps(found[:, place].tolist(), best))
            for kind, found in grids.items()
            for place, lr in enumerate(GRID)
        },
        "variants": {},
    }
    for name in words.only:
        comparisons: list[dict[str, Any]] = []
        record["variants"][name] = {"about": VARIANTS[name].about, "comparisons": comparisons}
        for line in learn(VARIANTS[name], train, held_out, words):
            comparisons.append(line)
            print(name, {key: round(value, 4) for key, value in line.items() if key != "fitness"}, flush=True)
            write(record, words.out)
    return record


def side_by_side(words: argparse.Namespace) -> dict[str, Any]:
    """The variants, each in its own process; their records are joined."""
    given = [word for word in sys.argv[1:] if word != "--processes"]
    record: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        outs = {name: Path(folder) / f"{name}.json" for name in words.only}
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "experiments.universal_lstm_variants", *given, "--only", name, "--out", str(out)]
            )
            for name, out in outs.items()
        ]
        for name, process in zip(outs, running, strict=True):
            if process.wait():
                print(f"{name} ended with {process.returncode}", file=sys.stderr)
        for out in outs.values():
            one = json.loads(out.read_text()) if out.is_file() else {"variants": {}}
            record = {**record, **one, "variants": record.get("variants", {}) | one["variants"]}
    return record


def write(record: dict[str, Any], out: Path | None) -> None:
    """As JSON."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=100, help="of each variant")
    parser.add_argument("--seconds", type=float, default=math.inf, help="a variant stops after them")
    parser.add_argument("--every", type=int, default=20, help="generations between comparisons")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--horizons", type=int, nargs=2, default=(100, 1000))
    parser.add_argument("--kinds", type=int, nargs=2, default=(32, 18), help="to learn from, to judge on")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--processes", action="store_true", help="all variants at the same time")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    record = side_by_side(words) if words.processes else measure(words)
    write(record, words.out)
    for name, found in record.get("one LR for all", {}).items():
        print(name, {key: round(value, 4) for key, value in found.items()})


if __name__ == "__main__":
    main()
