"""Previews of the default beside the LRs that it then set, in the trainings of the proof.

    python -m experiments.previews     # minutes on a CPU; writes results/preview/cpu.json

A preview is taken after the first batch's gradients, with the weights and data of the recorded training.
"""

import json
import platform
from statistics import median

import torch

from experiments import markdown, results
from mlrsnet import preview
from mlrsnet.card import versions
from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

FILE, FOLDER, ROW = "preview/cpu.json", "proof_short", "Universal"
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
"""Of the training."""

WIDTH = 0.02
"""Real LRs are the median over this share of the training on either side."""


def trainings() -> dict[str, Record]:
    """The default on every task of the proof, first seed."""
    return {table.title: results.run(FOLDER, table.title, ROW) for table in results.columns(FOLDER)}


def previewed(spec: RunSpec) -> list[float]:
    """The LRs that a preview gives, at `SHARES` of the training."""
    stepper = Stepper(spec, torch.device("cpu"), None)
    stepper.data.train.prepare()
    stepper.gradients()
    found = preview(stepper.optimizer, spec.schedule_options["schedule"], total_steps=stepper.total_steps)
    return [found.at(share) for share in SHARES]


def real(run: Record) -> list[float]:
    """The LRs of a training at `SHARES` of it."""
    lrs = run.trace["lr"]
    wide = max(1, round(WIDTH * len(lrs)))
    places = [round(share * (len(lrs) - 1)) for share in SHARES]
    return [median(lrs[max(0, place - wide) : place + wide + 1]) for place in places]


def table() -> list[str]:
    """Real LRs divided by previewed ones."""
    kept = results.data(FILE)["lrs"]
    ratios = [[a / b for a, b in zip(real(run), kept[title], strict=True)] for title, run in trainings().items()]
    rows = [
        [name, *(f"{pick(column):.2g}" for column in zip(*ratios, strict=True))]
        for name, pick in (("lowest", min), ("median", median), ("highest", max))
    ]
    heads = ["LR set / LR previewed", *(f"at {round(100 * share)} %" for share in SHARES)]
    return [*markdown.table(heads, rows), "", f"{len(ratios)} trainings ([previews](../results/{FILE}))."]


def main() -> None:
    """Measure, and write the record."""
    torch.set_num_threads(1)
    lrs = {}
    for title, run in trainings().items():
        lrs[title] = previewed(RunSpec.from_dict(run.spec))
        print(title, [f"{a / b:.2f}" for a, b in zip(real(run), lrs[title], strict=True)], flush=True)
    record = {"cpu": platform.processor() or platform.machine(), "versions": versions(), "shares": SHARES, "lrs": lrs}
    path = results.RESULTS / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
