"""`MetaTrainer`'s `compat`: where the authors' code departs from the paper."""

from collections.abc import Collection

from mlrsnet import _check

COMPAT = {
    "layout": "the default network is the authors' meta-train one: gates i, f, o, g, sigmoid(f - 1), half-width layers",
    "every": "T_val is 300 unless given",
    "epoch-period": "T_val restarts in every epoch, and its last step updates, not its first (pass steps_per_epoch)",
    "advance-twice": "at a meta-update the memory advances twice: for the look-ahead, and again for the step",
    "phases": "networks are kept after 1/200, 1/2 and all of training (their epochs 1, 100 and 200)",
    "phase-gamma": "the schedule's card asks for a new gamma at every phase; `LearnedLR.renew_gamma` gives it the authors'",
}
"""Where the authors' code departs from the paper in ways that change numbers. For comparisons only."""


def departures(compat: str | Collection[str]) -> frozenset[str]:
    """The names out of `COMPAT` that the user asked for. "official" means all of them."""
    if not isinstance(compat, Collection):
        raise TypeError(f"compat must be a name or a list of names, got {compat!r}: pass 'official', or some of COMPAT")
    names = [compat] if isinstance(compat, str) else list(compat)
    known = {_check.one_of("compat", name, ("official", *COMPAT)) for name in names}
    return frozenset(COMPAT if "official" in known else known)


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
