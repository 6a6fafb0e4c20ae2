"""What does a schedule network need to read? Ablations, learned on the digits 0 to 4 and judged on 5 to 9.

All begin as a fixed LR, except the one with the anneal factor; everything else is the demo's full-horizon meta-training. The gap is
that of the mean calibrated validation loss to the best cosine with 5 % warm-up, whose one LR is chosen on the same trainings.

    python -m experiments.horizon_ablations [--seeds 0 1 2] [--out results/horizon/ablations-here.json]
"""

import argparse
import json
import platform
import time
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from experiments import markdown, results
from mlrsnet.card import Card, versions
from mlrsnet.nets import LSTMNet, TrendNet, build_net
from mlrsnet.ranges import Fixed
from mlrsnet.schedule import Schedule
from mlrsnet_lab.demo import LEARN_ON, TRANSFER_TO
from mlrsnet_lab.distributions import inner_tasks
from mlrsnet_lab.horizon import Evolution, HorizonTrainer, Tasks
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.records import commit


def variant(seed: int, *, kind: type[LSTMNet] = LSTMNet, **changes: Any) -> LSTMNet:
    """The demo's network, changed."""
    config = first_net(16, anneal="none", seed=seed, kind=kind).config()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        made = build_net({**config, **changes})
    assert isinstance(made, LSTMNet)
    return made


VARIANTS = {
    "loss and progress": lambda seed: variant(seed),
    "and their trends (TrendNet)": lambda seed: variant(seed, kind=TrendNet),
    "with the anneal factor": lambda seed: variant(seed, anneal="linear"),
    "without the loss": lambda seed: variant(seed, inputs=["progress"]),
    "without progress": lambda seed: variant(seed, inputs=["loss"]),
}


def table() -> list[str]:
    """Mean loss of held-out trainings before and after learning."""
    lines = (
        [row["variant"], f"{row['before']:.4f}", f"{row['after']:.4f}", f"{100 * row['gap to cosine']:+.1f} %"]
        for row in results.data("horizon/ablations-cpu.json")["rows"]
    )
    return markdown.table(["reads", "before learning", "after", "gap to the best cosine"], lines)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    rows: list[dict[str, Any]] = []
    grids = None
    for seed in words.seeds:
        for name, make in VARIANTS.items():
            trainer = HorizonTrainer(
                Tasks(
                    inner_tasks("digits", classes=LEARN_ON),
                    per_generation=4,
                    held_out=48,
                    measured_on=inner_tasks("digits", classes=TRANSFER_TO),
                ),
                Schedule(make(seed), Card(gamma=Fixed(1.0))),
                Evolution(words.generations, seed=seed),
            )
            assert trainer.held_out is not None
            if grids is not None:
                trainer.held_out.grid_fitness = grids  # the same trainings for all: the grid is trained once
            begin = time.perf_counter()
            trainer.run(every=words.generations)
            grids = trainer.held_out.grids()
            first, last = trainer.comparisons
            rows.append(
                {
                    "variant": name,
                    "seed": seed,
                    "seconds": round(time.perf_counter() - begin, 1),
                    "before": mean(first.learned),
                    "after": mean(last.learned),
                    "gap to cosine": last.gap("cosine"),
                    "lrs": last.lrs,
                    "fitness": last.learned,
                }
            )
            print({key: value for key, value in rows[-1].items() if key not in ("lrs", "fitness")}, flush=True)
            if words.out:
                record = {
                    "versions": versions(),
                    "machine": {"system": platform.platform()},
                    "commit": commit(),
                    "generations": words.generations,
                    "rows": rows,
                }
                words.out.parent.mkdir(parents=True, exist_ok=True)
                words.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
