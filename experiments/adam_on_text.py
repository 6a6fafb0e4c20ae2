"""Why Adam may be behind on Penn Treebank: under Adam the paper's weight decay is hundreds of times as strong as under SGD.

SGD's decay shrinks every weight by lr * wd a step. Adam divides the decay by the size of the gradient, too, so a weight shrinks by
lr * wd / sqrt(v), and the gradients of a language model with 10,000 words are tiny. AdamW keeps the decay apart: lr * wd again.

    mlrsnet train --task ptb --model lstm --optimizer adam --option optimizer.beta1=0 --schedule val-strategy --lr 0.01 \\
        --weight-decay 5e-6 --clip-norm 0.25 --batch-size 32 --sequence-length 35 --epochs 1 --device cpu --out RUN
    python -m experiments.adam_on_text --run RUN --data DIR    # after Ctrl-C: what its checkpoint has
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from experiments import markdown, results
from mlrsnet_lab import records
from mlrsnet_lab.recipes import table3
from mlrsnet_lab.report.numbers import short_text
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

RECORD = results.RESULTS / "adam_on_text" / "cpu.json"
LAST = 100
"""Steps whose mean loss is shown."""


def measure(folder: Path, root: Path | None) -> dict[str, Any]:
    """The losses of an unfinished first epoch, and by how much the decay shrinks the median weight at its last step."""
    told = json.loads((folder / records.RECORD).read_text())
    stepper = Stepper(RunSpec.from_dict(told["spec"]), torch.device("cpu"), root)
    stepper.load_state_dict(torch.load(folder / records.CHECKPOINT, weights_only=True)["training"])
    losses = stepper.trace.read()[0]
    return {
        "what": "the first steps of Table 3's Adam, 2-layer LSTM, in fp32; losses of all steps",
        **{key: told[key] for key in ("spec", "versions", "device")},
        "steps": stepper.step_count,
        "losses": [float(f"{loss:.5g}") for loss in losses],
        "decay_per_step": float(f"{shrinkage(stepper.optimizer):.4g}"),
    }


def shrinkage(optimizer: torch.optim.Optimizer) -> float:
    """The share of the median weight that Adam's decay takes in a step: lr * wd / sqrt(v).

    >>> weight = torch.nn.Parameter(torch.ones(3))
    >>> weight.grad = torch.full((3,), 0.01)
    >>> adam = torch.optim.Adam([weight], lr=0.1, weight_decay=0.001)
    >>> _ = adam.step()
    >>> round(shrinkage(adam), 4)  # the gradient with its decay is 0.011
    0.0091
    """
    (group,) = optimizer.param_groups
    sizes = torch.cat(list(_sizes(optimizer, group["betas"][1])))
    return float(group["lr"]) * float(group["weight_decay"]) / float(sizes.median())


def _sizes(optimizer: torch.optim.Optimizer, beta2: float) -> Iterable[torch.Tensor]:
    """sqrt(v) of all weights, corrected for its start at 0."""
    for state in optimizer.state.values():
        yield (state["exp_avg_sq"] / (1 - beta2 ** float(state["step"]))).sqrt().flatten()


def table() -> list[str]:
    """What the decay takes in a step under three optimizers, and Adam's loss in both precisions at the same steps."""
    told = json.loads(RECORD.read_text())
    sgd = table3.language_model("paper", 2)
    adam = table3.over_adam(sgd)
    shares = {"SGD": sgd.lr * sgd.weight_decay, "Adam": told["decay_per_step"], "AdamW": adam.lr * adam.weight_decay}
    lines = [
        [f"{row}, LR {lr:g}", short_text(shares[row])]
        for row, lr in {"SGD": sgd.lr, "Adam": adam.lr, "AdamW": adam.lr}.items()
    ]
    heads = ["", "share of the median weight that the decay takes in a step"]
    steps = range(told["steps"] - LAST, told["steps"])
    own = fmean(told["losses"][step] for step in steps)
    trace = results.run("table3_short", "2-layer LSTM", "Adam, val strategy").trace
    recorded = fmean(loss for step, loss in zip(trace["step"], trace["loss"], strict=True) if step in steps)
    return [
        *markdown.table(heads, lines),
        "",
        f"Adam's training loss in steps {steps[0]} to {steps[-1]}: {recorded:.2f} in bf16 on an H200, {own:.2f} in fp32 on a CPU "
        f"([record](../results/{RECORD.relative_to(results.RESULTS)})).",
    ]


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(prog="python -m experiments.adam_on_text", description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="an unfinished run with Adam, see above")
    parser.add_argument("--data", type=Path, help="where ptb/ is")
    given = parser.parse_args()
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(measure(given.run, given.data)) + "\n")


if __name__ == "__main__":
    main()
