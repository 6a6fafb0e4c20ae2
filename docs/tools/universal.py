"""The shipped default beside its rivals, from committed records: `python docs/tools/universal.py` prints the documents' table.

A rival with a grid of LRs is shown at the LR whose validation result was best, over all seeds; a training that diverged is out.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

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
COLUMNS = ("universal", "universal-relative", "best decay of ten", *OTHERS.values())


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
        spread = f" ± {stdev(self.values):.2f}" if len(self.values) > 1 else ""
        return f"{mean(self.values):.2f}{spread}"


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
        cells = [str(row.get(column) or "") for column in columns]
        lines.append(f"| {task} ({unit}) | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
