"""Does a network that reads the loss improve on the default's law? Both on the trainings of the table, from which it did not learn.

mlrsnet metatrain --preset universal-reading --generations 160 --tasks 5 --out universal-reading.safetensors
python -m experiments.reading_net universal-reading.safetensors      writes results/horizon/universal-reading*
"""

import json
import math
import shutil
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from experiments import markdown, results, second_universal
from mlrsnet import Schedule
from mlrsnet.horizon.comparison import HeldOut, log_gaps, paired
from mlrsnet.lab.table.kinds import Kind
from mlrsnet.schedule import DEFAULT

RECORD = results.RESULTS / "horizon" / "universal-reading.json"
JUDGED = RECORD.with_name("universal-reading-judged.json")


def judge(path: Path) -> dict[str, Any]:
    """Fitness of every training of the table under both schedules, at its end."""
    rows = [Kind(**kind) for kind in second_universal.table().kinds]
    schedules = {"law": Schedule.load(DEFAULT), "network": Schedule.load(path)}
    found: list[dict[str, Any]] = []
    for row in rows:
        held_out = HeldOut([row.task()], kinds={})
        ends = {name: held_out.compare(0, schedule).learned[0] for name, schedule in schedules.items()}
        found.append({"number": row.number, "family": row.family, "total_steps": row.total_steps, **ends})
        print(found[-1], flush=True)
    return {"digest": schedules["network"].fingerprint(), "rows": found}


def gaps(found: dict[str, Any]) -> dict[str, list[float]]:
    """log((network + 0.05) / (law + 0.05)) by family; negative if the network is better."""
    by_family: dict[str, list[float]] = {}
    for row in found["rows"]:
        (gap,) = log_gaps([row["network"]], [min(row["law"], 9.0)])
        by_family.setdefault(row["family"], []).append(gap)
    return by_family


def table() -> list[str]:
    """By family."""
    found = json.loads(JUDGED.read_text())
    by_family = gaps(found)
    lines = [_line(family, values) for family, values in sorted(by_family.items())]
    lines.append(_line("**all**", [value for values in by_family.values() for value in values]))
    learned = json.loads(RECORD.read_text())
    spec = learned["spec"]
    return [
        *markdown.table(["family", "runs", "mean", "standard error", "median", "network better"], lines),
        "",
        f"log((f of the network + 0.05) / (f of the law + 0.05)); below 0 the network is better. {len(learned['generations'])} "
        f"generations of {spec['tasks']} tasks with {spec['members']} members.",
    ]


def _line(name: str, values: list[float]) -> list[str]:
    _, error = paired(values, [0.0] * len(values))
    wins = sum(value < 0 for value in values)
    return [
        name,
        str(len(values)),
        f"{mean(values):+.3f}",
        "" if math.isnan(error) else f"{error:.3f}",
        f"{median(values):+.3f}",
        f"{wins} of {len(values)}",
    ]


def main() -> None:
    """Judge a schedule, and keep the record of how it was learned."""
    path = Path(sys.argv[1])
    torch.set_num_threads(1)
    JUDGED.write_text(json.dumps(judge(path), indent=1) + "\n")
    shutil.copy(path.with_name(path.name + ".json"), RECORD)
    shutil.copy(path, RECORD.with_suffix(path.suffix))


if __name__ == "__main__":
    main()
