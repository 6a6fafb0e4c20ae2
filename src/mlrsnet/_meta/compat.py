"""`MetaTrainer`'s `compat`: where the authors' code departs from the paper."""

from collections.abc import Collection

from torch import nn

from mlrsnet import _check
from mlrsnet.nets import LSTMNet

COMPAT = {
    "layout": "the default network is the authors' meta-train one: gates i, f, o, g, sigmoid(f - 1), half-width layers",
    "every": "T_val is 300 unless given",
    "epoch-period": "T_val restarts in every epoch, and its last step updates, not its first (pass steps_per_epoch)",
    "advance-twice": "at a meta-update the memory advances twice: for the look-ahead, and again for the step",
    "phases": "networks are kept after 1/200, 1/2 and all of training (their epochs 1, 100 and 200)",
    "phase-gamma": "the schedule's card asks for a new gamma at every phase; `LearnedLR.renew_gamma` gives it the authors'",
    "net-init": "the default network's cells begin with weights from -0.1 to 0.1, not with torch's",
    "initial-loss": "gamma comes from the mean loss of the training set in evaluation mode (pass it as initial_loss)",
}
"""Where the authors' code departs from the paper in ways that change numbers. For comparisons only."""

OFFICIAL = ("layout", "every", "epoch-period", "advance-twice", "phases", "phase-gamma")
"""What "official" means: those that version 0.1 had, so that its specs still describe the same training."""

EVERYTHING = {"authors": tuple(COMPAT), "official": OFFICIAL}
"""Names for several departures."""

NET_RANGE = 0.1


def departures(compat: str | Collection[str]) -> frozenset[str]:
    """The names out of `COMPAT` that the user asked for. "authors" means all of them.

    >>> sorted(departures("authors") - departures("official"))
    ['initial-loss', 'net-init']
    """
    if not isinstance(compat, Collection):
        raise TypeError(f"compat must be a name or a list of names, got {compat!r}: pass 'authors', or some of COMPAT")
    names = [compat] if isinstance(compat, str) else list(compat)
    known = [_check.one_of("compat", name, (*EVERYTHING, *COMPAT)) for name in names]
    return frozenset(one for name in known for one in EVERYTHING.get(name, (name,)))


def initialise(net: LSTMNet) -> None:
    """Draw the cells' weights as the authors' meta-training does, uniform in [-0.1, 0.1]; biases and output are torch's."""
    for cell in net.cells:
        for layer in cell.modules():
            if isinstance(layer, nn.Linear):
                nn.init.uniform_(layer.weight, -NET_RANGE, NET_RANGE)


def check_initial_loss(initial_loss: float | None, compat: frozenset[str]) -> None:
    """Raise if the authors' gamma was asked for without the loss that it comes from."""
    if "initial-loss" in compat and initial_loss is None:
        raise ValueError(
            "initial_loss must be a number with compat's initial-loss, got None: pass the mean loss of the training set in "
            "evaluation mode, before the first step"
        )


def check_period(every: int | None, steps_per_epoch: int | None, compat: frozenset[str]) -> tuple[int, int | None]:
    """T_val with its default, and the length of an epoch, which only "epoch-period" needs."""
    by_epoch = "epoch-period" in compat
    every = _check.whole_number("every", (300 if "every" in compat else 100) if every is None else every)
    if steps_per_epoch is None and not by_epoch:
        return every, None
    hint = "compat's epoch-period restarts T_val in every epoch"
    steps = _check.whole_number("steps_per_epoch", steps_per_epoch, hint=hint)
    if by_epoch and every > steps:
        raise ValueError(
            f"every must be at most steps_per_epoch with compat's epoch-period, got {every} and {steps}: no step would "
            "update; pass a smaller T_val"
        )
    return every, steps


def phase_ends(total_steps: int, num_phases: int, compat: frozenset[str]) -> list[int]:
    """Steps after which a network is kept: ceil(T l / k) for l = 1..k. The authors keep theirs at other steps."""
    if "phases" in compat:
        return [-(-total_steps // part) for part in (200, 2, 1)]
    return [-(-total_steps * part // num_phases) for part in range(1, num_phases + 1)]
