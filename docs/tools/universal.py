"""The shipped default beside its rivals, from committed records: `python docs/tools/universal.py` prints the documents' table.

A rival with a grid of LRs is shown at the LR whose validation result was best, over all seeds; a training that diverged is out.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from mlrsnet.horizon.comparison import log_gaps
from mlrsnet.lab.report.numbers import metric_stat, stat

RESULTS = Path(__file__).parents[2] / "results"
SMALL, RESNET, RESNET_RIVALS = RESULTS / "universal_short", RESULTS / "universal_paper", RESULTS / "horizon_short"
TASKS = {
    "digits-mlp-sgd": "digits, MLP, SGD",
    "fashion-mnist-mlp-sgd": "Fashion-MNIST, MLP, SGD",
    "svhn-16x16-cnn-sgdm": "SVHN 16x16, CNN, SGD with momentum",
    "cifar-10-16x16-cnn-sgd": "CIFAR-10 16x16, CNN, SGD",
    "shakespeare-transformer-adamw": "characters, transformer, AdamW",
    "shakespeare-lstm-adam": "characters, LSTM, Adam",
    "shakespeare-lstm-sgd": "characters, LSTM, SGD",
}
BAR = "\\|"
RESNET_TASK = "CIFAR-10, ResNet-18, SGD"
DECAYS = [f"{kind}-{times}x" for kind in ("cosine", "linear") for times in ("0-3", "1", "3", "10", "30")]
OTHERS = {
    "cosine-1x": "cosine, usual LR",
    "multistep": "MultiStep",
    "schedule-free": "Schedule-Free",
    "prodigy-cosine": "Prodigy + cosine",
    "authors-checkpoints": "the authors' checkpoints",
    "algorithm-1": "Algorithm 1",
}
COLUMNS = ("universal", "universal-relative", "best decay of ten", "cosine, usual LR")
MORE = tuple(name for name in OTHERS.values() if name not in COLUMNS)


@dataclass(frozen=True)
class Outcome:
    """What a schedule came to on a task: test results of the last epoch, one a seed."""

    values: list[float]
    higher_is_better: bool
    validation: float

    @property
    def error(self) -> float:
        """What is to be small: the error in percent, or the perplexity."""
        return 100 - mean(self.values) if self.higher_is_better else mean(self.values)

    def __str__(self) -> str:
        return metric_stat(stat(self.values))


def outcome(folder: Path) -> Outcome | None:
    """Of all seeds below; None where there are none, or one of them did not come to its end."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("seed*/record.json"))]
    if not records or any(record["status"] != "finished" for record in records):
        return None
    results = [record["result"] for record in records]
    return Outcome(
        [result["last"] for result in results],
        records[0]["metric"]["better"] == "higher",
        mean(result["val_metric"] for result in results),
    )


def best(folders: list[Path]) -> tuple[str, Outcome]:
    """The one whose validation result is best."""
    found = [(folder.name, one) for folder in folders if (one := outcome(folder)) is not None]
    return min(found, key=lambda pair: -pair[1].validation if pair[1].higher_is_better else pair[1].validation)


def outcomes() -> dict[str, dict[str, Outcome | None]]:
    """By task and column."""
    found: dict[str, dict[str, Outcome | None]] = {}
    for folder, task in TASKS.items():
        here = SMALL / folder
        found[task] = {
            "universal": outcome(here / "universal"),
            "universal-relative": outcome(here / "universal-relative"),
            "best decay of ten": best([here / name for name in DECAYS])[1],
            **{column: outcome(here / name) for name, column in OTHERS.items()},
        }
    learned = RESNET / "cifar-10-resnet-18-sgd"
    rivals = [path for path in sorted((RESNET_RIVALS / "cifar-10").iterdir()) if path.name != "full-horizon"]
    found[RESNET_TASK] = {
        "universal": outcome(learned / "universal"),
        "universal-relative": outcome(learned / "universal-relative"),
        "best decay of ten": best(rivals)[1],
        "cosine, usual LR": outcome(RESNET_RIVALS / "cifar-10" / "cosine-0-1"),
    }
    return found


def table(columns: tuple[str, ...] = COLUMNS) -> list[str]:
    """As Markdown."""
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for task, row in outcomes().items():
        unit = "%" if next(one for one in row.values() if one).higher_is_better else "perplexity"
        if not any(row.get(column) for column in columns):
            continue
        cells = [str(row.get(column) or "") for column in columns]
        lines.append(f"| {task} ({unit}) | {' | '.join(cells)} |")
    return lines


def variants() -> list[str]:
    """What was tried: mean and median gap to the best decay of each validation training, before and after learning."""
    record = json.loads((RESULTS / "universal" / "variants-h200.json").read_text())
    lines = ["| variant | reads, and its range | before learning | after 25 generations |", "| --- | --- | --- | --- |"]
    for name, variant in record["variants"].items():
        found = {line["generations"]: f"{line['mean']:.3f}, {line['median']:.3f}" for line in variant["comparisons"]}
        lines.append(f"| {name} | {variant['about'].replace('|', BAR)} | {found[0]} | {found.get(25, '')} |")
    single = record["one LR for all"]
    for name in ("linear 0.3", "linear 1", "linear 3"):
        lines.append(
            f"| {name} | one LR for all, 5 % warm-up | {single[name]['mean']:.3f}, {single[name]['median']:.3f} | |"
        )
    return lines


def progress() -> list[str]:
    """The two meta-trainings: mean and median gap to the best of 18 rivals of each held-out training."""
    records = [
        json.loads((RESULTS / "universal" / f"{name}.json").read_text()) for name in ("universal", "universal-relative")
    ]
    rivals = records[0]["rivals"]["fitness"]
    fitness = {
        f"{kind} {lr:g}": [row[place] for row in rows]
        for kind, rows in rivals.items()
        for place, lr in enumerate(records[0]["rivals"]["grid"])
    }
    best_of_each = [min(map(_number, found)) for found in zip(*fitness.values(), strict=True)]

    def gap(found: list[float | None]) -> str:
        each = log_gaps([_number(one) for one in found], best_of_each)
        return f"{mean(each):.3f}, {median(each):.3f}"

    numbers = [line["number"] for line in records[0]["comparisons"]]
    lines = ["| generations | universal | universal-relative |", "| --- | --- | --- |"]
    for place, number in enumerate(numbers):
        lines.append(f"| {number} | {' | '.join(gap(record['comparisons'][place]['learned']) for record in records)} |")
    single = min(fitness, key=lambda name: float(gap(fitness[name]).split(",")[0]))
    return [*lines, f"| the best LR for all, {single} | {gap(fitness[single])} | |"]


def shortfalls() -> list[str]:
    """Where `universal` is above the best decay of ten, and by how much."""
    found = {
        task: row["universal"].error / row["best decay of ten"].error - 1
        for task, row in outcomes().items()
        if row["universal"] and row["best decay of ten"]
    }
    return [f"{100 * part:.1f} % above it on {task}" for task, part in found.items() if part > 0]


def validation() -> list[str]:
    """Learned against not learned, seeing against blind."""
    record = json.loads((RESULTS / "universal" / "validation-cpu.json").read_text())
    pairs = {
        "`universal` less linear from 1": record["gap to linear"]["universal"],
        "`universal` less its beginning": record["gap to start"]["universal"],
        "`universal` less blind": record["gap to blind"]["universal"],
        "blind less linear from 1": record["gap to linear"]["blind"],
        "`universal-relative` less linear from 1": record["gap to linear"]["universal-relative"],
        "`universal-relative` less its beginning": record["gap to start"]["universal-relative"],
    }
    lines = [
        "| | mean gap, negative is better | median | share of trainings at least as good |",
        "| --- | --- | --- | --- |",
    ]
    return lines + [
        f"| {name} | {gap['mean']:+.4f} ± {gap['standard error']:.4f} | {gap['median']:+.4f} | "
        f"{100 * gap['at least as good']:.0f} % |"
        for name, gap in pairs.items()
    ]


def ablations() -> list[str]:
    """What a network needs to read, on digits."""
    rows = json.loads((RESULTS / "horizon" / "ablations-cpu.json").read_text())["rows"]
    lines = ["| reads | before learning | after | gap to the best cosine |", "| --- | --- | --- | --- |"]
    return lines + [
        f"| {row['variant']} | {row['before']:.4f} | {row['after']:.4f} | {100 * row['gap to cosine']:+.1f} % |"
        for row in rows
    ]


def _number(value: float | None) -> float:
    """What a record wrote; a training that diverged has none."""
    return float(value) if isinstance(value, int | float) else math.inf


if __name__ == "__main__":
    print("\n".join([*table(), "", *table(MORE), "", *variants(), "", *progress()]))
