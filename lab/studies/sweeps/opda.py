"""Sealed judge: AlexNet and ConvNeXt-Tiny on ImageNet under SGD, 512 random settings of each (nicholaslourie/opda, CC BY-SA 4.0).

Written before the table was opened, from its description, after the law was final. The description says which settings were
best and that medians are best at an lr / (1 - momentum) of 0.1 to 0.3 (AlexNet) and 0.3 to 1 (ConvNeXt); that was known.
Nothing of the law follows from what comes out.

**Mapping.** No length of a gradient or of weights was logged, so r can only be had where the decay d holds the length of the
weights. With eta = lr / (1 - m) and gradients that are noise and at right angles to the weights, a step adds eta^2 |g|^2 to
|w|^2 once its momentum is counted, and decay (torch's, part of the gradient) takes 2 eta d |w|^2. As for Adam, the gradient
cancels:

    r_t = eta_t |g| / |w| = sqrt(2 eta_t d)         r = mean(r_t) / mean(course) = 2/3 sqrt(2 eta d) / mean(course)

2/3 is the mean of a square root under an LR that rises straight to its peak and falls straight to 0.

**Assumed.** This is the weakest mapping of all sources.
- Equilibrium: only trainings with eta d T / 2 >= 1 count (half of the peak is the mean LR); `all` has the others too.
- Gradients at right angles to the weights need norms after each matrix. AlexNet has none, and most of ConvNeXt's matrices have
  none after them. Training lengthens such weights further, so their r is smaller than this: r is an upper bound, and a best /
  law below 1 would be expected to be still smaller.
- Straight schedules. T = epochs * (1,281,167 // batch). n: 61.1 million (AlexNet, 8 matrices, no norms) and 28.6 million
  (ConvNeXt-Tiny, norms, more than 12 matrices). SGD: not adaptive. B: pictures.
- Momentum, decay, label smoothing and the length of the warm-up differ from training to training, and blur everything.

**Judging.** Trainings differ in everything, so there are no curves. Each rule gives each training a size; trainings whose size
was within a factor of 1.5 of z times the rule's tell what the rule costs at a scale of z: the median of their errors at the
end, of at least 15. A training that became NaN, or has no accuracy, counts with an error of 0.999. The cost of a rule is its
median at z = 1 above the lowest median of all rules at all z; best / law is the z of the law's lowest median. Intervals draw
trainings. `nan` is the share that became NaN at z = 1.

Rules: the law, the law before, a relative size of 0.087, and the usual LR of SGD on ImageNet, eta = B / 256 (0.1 at momentum
0.9 and batches of 256). The usual LR says nothing of the decay. The verdict: the law stands for a network if the mean cost at z
= 1 is below the law before's and that of 0.087, and best / law is between 1/2 and 2. The curves of single epochs are not
needed, and stay unopened.

**After it was opened**: `best tenth` says which multiples of the law the tenth with the lowest errors had, in the middle and
between which 80 % of them are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from lab.studies.sweeps import steps
from lab.studies.sweeps.fits import SMALL, interval
from lab.studies.sweeps.read import Row, number, table

PICTURES, GUESSING, NEAR, FEWEST, DRAWS = 1_281_167, 0.999, 1.5, 15, 300
SCALES = np.geomspace(1 / 64, 64, 73)


class Network(NamedTuple):
    """What the law is told of a network."""

    size: float
    depth: int
    has_norms: bool


NETWORKS = {"alexnet": Network(61.1e6, 8, False), "convnext": Network(28.6e6, 12, True)}
"""By how their names begin."""


@dataclass(frozen=True)
class Training:
    """One of them. eta: lr / (1 - momentum). error: at the end."""

    network: Network
    steps: float
    batch: float
    eta: float
    decay: float
    error: float
    is_nan: bool

    @property
    def r(self) -> float:
        """Its relative step, at equilibrium."""
        return 2 / 3 * steps.at_equilibrium(self.eta, self.decay) / steps.mean_course()

    @property
    def is_settled(self) -> bool:
        """Whether decay had the time to hold the length of the weights."""
        return self.eta / 2 * self.decay * self.steps >= 1

    @property
    def law(self) -> float:
        """The r of the default."""
        return steps.of_law(self.steps, self.network.size, self.batch, *self.network[1:], is_adaptive=False)

    @property
    def before(self) -> float:
        """The same of the law before."""
        depth = 1 if self.network.has_norms else self.network.depth
        return steps.of_law_before(self.steps, self.network.size, depth)


RULES: dict[str, Callable[[Training], float]] = {
    "the law": lambda one: one.r / one.law,
    "the law before": lambda one: one.r / one.before,
    "that of small trainings": lambda one: one.r / SMALL,
    "usual LR": lambda one: one.eta / (one.batch / 256),
}
"""By which multiple of a rule's size a training was run."""


def trainings(folder: Path) -> dict[str, list[Training]]:
    """By network."""
    rows = table(folder, "opda_imagenet")
    return {
        name: [_training(network, row) for row in rows if row["model"].lower().startswith(name)]
        for name, network in NETWORKS.items()
    }


def _training(network: Network, row: Row) -> Training:
    batch, accuracy = number(row["batch_size"]), number(row["final_top1"])
    is_nan = number(row["nan_train_loss"]) == 1
    return Training(
        network,
        number(row["epochs"]) * (PICTURES // batch),
        batch,
        number(row["lr"]) / (1 - number(row["momentum"])),
        number(row["weight_decay"]),
        GUESSING if is_nan or not math.isfinite(accuracy) else 1 - accuracy,
        is_nan,
    )


def found(folder: Path) -> dict[str, Any]:
    """What each rule costs in each network, by settled trainings, and by all."""
    return {
        name: {"settled": judged([one for one in some if one.is_settled]), "all": judged(some)}
        for name, some in trainings(folder).items()
    }


def judged(runs: Sequence[Training]) -> dict[str, Any]:
    """Costs, best scales and their intervals; and the medians of the law by scale."""
    random = np.random.default_rng(0)
    scales = {name: np.array([rule(one) for one in runs]) for name, rule in RULES.items()}
    errors, is_nan = np.array([one.error for one in runs]), np.array([one.is_nan for one in runs])
    whole = costs(scales, errors)
    places = [random.integers(len(runs), size=len(runs)) for _ in range(DRAWS)]
    again = [costs({name: z[place] for name, z in scales.items()}, errors[place]) for place in places]
    rules = {
        name: {
            "cost": [whole[name][0], *interval(one[name][0] for one in again if math.isfinite(one[name][0]))],
            "best scale": [whole[name][1], *interval(one[name][1] for one in again)],
            "lowest": whole[name][2],
            "nan": float(is_nan[_near(z, 1.0)].mean()) if _near(z, 1.0).any() else math.nan,
            "near": int(_near(z, 1.0).sum()),
        }
        for name, z in scales.items()
    }
    law = scales["the law"]
    curve = [[float(z), _median(law, errors, z)] for z in SCALES]
    tenth = law[np.argsort(errors)[: len(errors) // 10]]
    return {
        "trainings": len(runs),
        "rules": rules,
        "law by scale": [one for one in curve if math.isfinite(one[1])],
        "best tenth": np.percentile(tenth, [50, 10, 90]).tolist(),
    }


def costs(scales: dict[str, Any], errors: Any) -> dict[str, tuple[float, float, float]]:
    """Of each rule: its median at a scale of 1 above the lowest of all, its best scale, its lowest median."""
    medians = {name: np.array([_median(z, errors, scale) for scale in SCALES]) for name, z in scales.items()}
    lowest = min(float(np.nanmin(one)) for one in medians.values())
    return {
        name: (
            _median(scales[name], errors, 1.0) - lowest,
            float(SCALES[int(np.nanargmin(one))]),
            float(np.nanmin(one)),
        )
        for name, one in medians.items()
    }


def _near(scales: Any, scale: float) -> Any:
    return np.abs(np.log(scales / scale)) <= math.log(NEAR)


def _median(scales: Any, errors: Any, scale: float) -> float:
    some = errors[_near(scales, scale)]
    return float(median(some.tolist())) if len(some) >= FEWEST else math.nan
