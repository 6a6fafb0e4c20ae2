"""Is learning worth anything, and is reading the loss? `universal-lstm` on 48 further trainings of the validation kinds.

`blind` is the curve that `universal-lstm` follows while the loss stays that of guessing: the same schedule, which cannot see.
`start` is the network before learning: a linear decay from an LR of 1. Gaps are to a linear decay from 1 with
5 % warm-up, the best single LR for these kinds: the mean of log((f + 0.05) / (f_linear + 0.05)), with its standard error.

    python -m experiments.universal_lstm_validation [--out results/universal_lstm/validation-here.json]
"""

import argparse
import json
import math
import platform
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch

from experiments import markdown, results
from mlrsnet import Schedule
from mlrsnet.baselines import factors
from mlrsnet.card import versions
from mlrsnet_lab.devices import device_name
from mlrsnet_lab.horizon import Compute, HeldOut, Task
from mlrsnet_lab.horizon.comparison import log_gaps
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.horizon.fitness import calibrated_loss
from mlrsnet_lab.horizon.policies import Factors
from mlrsnet_lab.horizon.pool import Pool
from mlrsnet_lab.horizon.seeds import seed_from
from mlrsnet_lab.meta_specs import NETWORKS, PRESETS
from mlrsnet_lab.records import commit
from mlrsnet_lab.universal import distribution

SHIPPED = "universal-lstm"


def start() -> Schedule:
    """The network that the recipe begins with."""
    spec = PRESETS[SHIPPED]
    net = first_net(spec.hidden, anneal=spec.anneal, start=spec.start, seed=spec.seed, kind=NETWORKS[spec.network])
    return Schedule(net, Schedule.load(SHIPPED).card)


def by_table(tasks: list[Task], curve: Any, run: Compute) -> list[float]:
    """Every task under a curve of its own length."""
    pool = Pool(lambda trainings: Factors(torch.ones(trainings, device=run.device), 10_000), run)
    factors_of = [torch.tensor([curve(task.total_steps)]) for task in tasks]
    found = torch.empty(len(tasks))
    for group in pool.train(tasks, factors_of, calibrated_loss):
        found[group.indices] = group.trained.fitness.float().cpu()
    return found.nan_to_num(nan=math.inf).tolist()


def table() -> list[str]:
    """Learned against not learned, seeing against blind."""
    record = results.data("universal_lstm/validation-cpu.json")
    pairs = {
        f"`{SHIPPED}` against linear from 1": record["gap to linear"][SHIPPED],
        f"`{SHIPPED}` against its start": record["gap to start"][SHIPPED],
        f"`{SHIPPED}` against blind": record["gap to blind"][SHIPPED],
        "blind against linear from 1": record["gap to linear"]["blind"],
    }
    lines = (
        [
            name,
            f"{one['mean']:+.4f} ± {one['standard error']:.4f}",
            f"{one['median']:+.4f}",
            f"{100 * one['at least as good']:.0f} %",
        ]
        for name, one in pairs.items()
    )
    heads = ["", "mean gap, negative is better", "median", "trainings at least as good"]
    return markdown.table(heads, lines)


def gap(fitness: list[float], base: list[float]) -> dict[str, float]:
    """Of one schedule to another, over trainings."""
    each = log_gaps(fitness, base)
    return {
        "mean": mean(each),
        "standard error": stdev(each) / math.sqrt(len(each)),
        "median": median(each),
        "at least as good": mean(one <= 0 for one in each),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=3, help="trainings of each kind")
    parser.add_argument("--horizons", type=int, nargs=2, default=(100, 800))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    run = Compute(torch.device(words.device))
    _, val = distribution(words.data, horizons=tuple(words.horizons))
    tasks = [
        kind.sample(seed_from("further", draw, number), 1)[0]
        for draw in range(words.each)
        for number, kind in enumerate(val.kinds)
    ]
    held_out = HeldOut(tasks, calibrated_loss, run, kinds={})
    eyes = Schedule.load(SHIPPED)
    range_of = eyes.card.gamma(1.0, None)  # fixed
    fitness = {
        "linear": by_table(tasks, lambda steps: factors("linear", steps, 1, warmup=0.05), run),
        "blind": by_table(tasks, lambda steps: eyes.simulate([1.0] * steps, range_of).tolist(), run),
    }
    fitness[SHIPPED] = held_out.compare(0, eyes).learned
    fitness[f"{SHIPPED}, start"] = held_out.compare(0, start()).learned
    record = {
        "versions": versions(),
        "machine": {"system": platform.platform(), "device": device_name(run.device)},
        "commit": commit(),
        "tasks": [f"{t.data.name}, {t.optimizer}, batch {t.batch_size}, {t.total_steps} steps" for t in tasks],
        "fitness": fitness,
        "gap to linear": {name: gap(found, fitness["linear"]) for name, found in fitness.items() if name != "linear"},
        "gap to blind": {SHIPPED: gap(fitness[SHIPPED], fitness["blind"])},
        "gap to start": {SHIPPED: gap(fitness[SHIPPED], fitness[f"{SHIPPED}, start"])},
    }
    print(json.dumps({name: found for name, found in record.items() if name.startswith("gap")}, indent=1))
    if words.out:
        words.out.parent.mkdir(parents=True, exist_ok=True)
        words.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
