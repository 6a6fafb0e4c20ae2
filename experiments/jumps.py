"""A squared error under plain SGD, with and without what keeps the default from losing such a training.

60 to 100 steps on scikit-learn's diabetes table, four networks without normalisation, 20 seeds each. Gradients of a squared error
grow with the error, so a step can be ten times as long as the average of those before it, and the next one longer still. The
default limits such a step by its own gradient (`Seen.now`), and lets a training go on that blew up (`default.SHORTEST_RISE`).

    python -m experiments.jumps
"""

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from statistics import median
from typing import Any
from unittest import mock

import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import OneCycleLR

from experiments import markdown, results
from mlrsnet import LearnedLR, default
from mlrsnet.default import Default
from mlrsnet.law import Seen

RECORD = results.RESULTS / "jumps" / "cpu.json"
SHAPES = ((60, 64, 2), (60, 32, 3), (80, 64, 3), (100, 128, 3))
"""Steps, width, hidden layers."""

SEEDS, BATCH, USUAL_LR = 20, 16, 0.1
NO_FLOOR = mock.patch.object(default, "SHORTEST_RISE", 0.0)
NO_LIMIT, DEAD, COSINE = "without the limit", "without the limit, and dead after a blow-up", "cosine, usual LR"
ARMS: dict[str, tuple[Any, ...]] = {
    "default": (),
    NO_LIMIT: (),
    DEAD: (NO_FLOOR,),
    COSINE: (),
}


class Unlimited(Default):
    """The default without its limit for plain SGD."""

    def advance(self, state: Any, seen: Seen, *more: Any) -> Any:
        """As the default does, without what is known of a step before it is taken."""
        return super().advance(state, seen._replace(now=0.0), *more)


def train(arm: str, steps: int, width: int, layers: int, seed: int) -> float:
    """The mean squared error over all rows at the end; 1 is guessing the mean."""
    torch.manual_seed(seed)
    x, y = (torch.tensor(part) for part in load_diabetes(return_X_y=True, scaled=False))
    x, y = (x - x.mean(0)) / x.std(0), ((y - y.mean()) / y.std()).unsqueeze(1)
    sizes = [x.shape[1], *[width] * layers]
    hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(width, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=USUAL_LR)
    lr: Any = (
        OneCycleLR(optimizer, USUAL_LR, total_steps=steps, pct_start=0.05, cycle_momentum=False)
        if arm == COSINE
        else LearnedLR(optimizer, Unlimited() if arm in (NO_LIMIT, DEAD) else Default(), total_steps=steps)
    )
    with _changed(arm):
        for rows in torch.randint(len(x), (steps, BATCH)):
            loss = mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            if arm != COSINE:
                lr.step(loss)
            optimizer.step()
            if arm == COSINE:
                lr.step()
    return float(mse_loss(model(x), y).detach())


@contextmanager
def _changed(arm: str) -> Iterator[None]:
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the schedule says that the loss grows: that is what is counted here
        for patch in ARMS[arm]:
            stack.enter_context(patch)
        yield


def measure() -> dict[str, Any]:
    """Every arm on the same trainings."""
    found = {arm: [round(train(arm, *shape, seed), 4) for shape in SHAPES for seed in range(SEEDS)] for arm in ARMS}
    return {"shapes": SHAPES, "seeds": SEEDS, **results.here(), "errors": found}


def table() -> list[str]:
    """How many trainings were lost, from the record."""
    errors = json.loads(RECORD.read_text())["errors"]
    lines = [
        [arm, f"{sum(not error < 1 for error in found)} of {len(found)}", f"{median(found):.2f}", _worst(found)]
        for arm, found in errors.items()
    ]
    return markdown.table(["", "worse than guessing", "median error", "worst"], lines)


def _worst(values: list[float]) -> str:
    return f"{max(values):.2f}" if all(map(math.isfinite, values)) else "not finite"


def main() -> None:
    """Measure and write."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(measure(), indent=1) + "\n")
    print("\n".join(table()))


if __name__ == "__main__":
    main()
