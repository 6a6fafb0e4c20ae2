"""The authors' program as a training of the lab: where it departs from the paper, with a switch for each departure.

`program(spec)` turns a meta-training as the paper prints it into theirs, with all departures or with some. Two things are left,
because the paper says nothing of them: they train in fp32 (`precision="fp32"` does so here), and an epoch ends with an incomplete
batch.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from mlrsnet.meta.authors import COMPAT
from mlrsnet_lab import checks
from mlrsnet_lab.spec import RunSpec

AUTHORS_EVERY = 300


@dataclass(frozen=True)
class Departure:
    """Where the authors' program departs from the paper; `task` and `model` are the options that make the lab do so.

    Without them, the departure's name is one of `MetaTrainer`'s `Departures`.
    """

    paper: str
    program: str
    task: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)

    def switch(self, name: str) -> str:
        """How to ask for it, as an option of a `RunSpec`."""
        found = [("task_options", self.task), ("model_options", self.model)]
        return next((f"{where}={options}" for where, options in found if options), f'compat=["{name}"]')


DEPARTURES = {
    "layout": Departure(
        "a forget gate sigmoid(f), layers as wide as the memory (Appendix B)", "sigmoid(f - 1), layers half as wide"
    ),
    "net-init": Departure(
        "the network starts with PyTorch's default weights", "its cells start with weights from -0.1 to 0.1"
    ),
    "every": Departure("T_val is 100", "300"),
    "epoch-period": Departure(
        "steps are counted through the whole training", "anew in every epoch: one update in each at T_val 300"
    ),
    "advance-twice": Departure(
        "look-ahead and step begin with the same memory",
        "the memory advances for the look-ahead, and again for the step",
    ),
    "initial-loss": Departure(
        "gamma comes from f_0, the initial loss; the lab takes the first batch's",
        "from the mean over the training set in evaluation mode, augmented",
    ),
    "phases": Departure("networks are kept after T/3, 2T/3 and T", "after epochs 1, 100 and 200"),
    "phase-gamma": Departure("a transfer computes gamma once", "again at each phase"),
    "overlap": Departure(
        "1,000 images are held out to validate",
        "1,000 are held out, but another 1,000 validate: 973 of them are trained on",
        task={"overlap": True},
    ),
    "augment-val": Departure(
        "not said; the lab does not augment images to validate on",
        "they are augmented as in training",
        task={"augment_val": True},
    ),
    "std": Departure(
        "not said; the lab divides pixels by the deviation of all pixels, 0.25 for CIFAR-10",
        "by the mean deviation of an image, 0.20; it enters f_0, whose batch norms have no statistics yet",
        task={"std": "picture"},
    ),
    "init": Departure(
        "not said; the lab keeps torch's initial weights",
        "Xavier-uniform with gain sqrt(2) in every convolution, as large as He's",
        model={"init": "xavier"},
    ),
}
"""By name. The first eight are `MetaTrainer`'s, see `COMPAT`."""


def program(spec: RunSpec, names: Collection[str] = tuple(DEPARTURES), *, every: int = AUTHORS_EVERY) -> RunSpec:
    """A meta-training, or any other training, with these departures of the authors' program.

    Args:
        spec: its schedule is `mlr-snet`, unless only `task` and `model` change.
        names: of `DEPARTURES`; all of them by default.
        every: T_val under the departure `every`.

    >>> mine = RunSpec(task="digits", model="small_cnn", schedule="mlr-snet")
    >>> program(mine, ["layout", "init"]).schedule_options, program(mine, ["layout", "init"]).model_options
    ({'compat': ['layout']}, {'init': 'xavier'})
    """
    asked = [name for name in DEPARTURES if name in {checks.one_of("names", one, DEPARTURES) for one in names}]
    options: dict[str, Any] = {"every": every} if "every" in asked else {}
    compat = [name for name in asked if name in COMPAT]
    if compat:
        options["compat"] = compat
    task, model = dict(spec.task_options), dict(spec.model_options)
    for name in asked:
        task |= DEPARTURES[name].task
        model |= DEPARTURES[name].model
    return replace(spec, task_options=task, model_options=model, schedule_options=spec.schedule_options | options)


def without(*names: str) -> list[str]:
    """All departures but these."""
    return [name for name in DEPARTURES if name not in names]
