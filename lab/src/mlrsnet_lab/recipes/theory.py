"""Convergence (Section 5.1): the bounds of the three theorems, beside simulations that meet their assumptions.

The paper proves rates but measures none: ln^2(T)/T for the loss (Theorem 1), 1/ln T for the meta-gradient (Theorem 3).
"""

from collections.abc import Sequence
from typing import Any

from mlrsnet_lab import theory
from mlrsnet_lab.recipes import theory_rates
from mlrsnet_lab.recipes.theory_rates import CONDITION_NUMBER, DIMENSION
from mlrsnet_lab.sheets import Figure, Grid, Recipe, nothing

LONG, META_LONG = (30, 100, 300, 1000, 3000, 10_000), (30, 100, 300, 1000, 3000)
HORIZONS = {"smoke": LONG[:3], "cpu": LONG, "short": LONG[:5], "paper": LONG}
META_HORIZONS = {"smoke": (10, 30, 100), "cpu": META_LONG, "short": META_LONG[:4], "paper": META_LONG}
NOISES = (theory.Noise(), theory.Noise(relative=0.5, absolute=0.1), theory.Noise(absolute=1e5))
M, N = 1, 2
CAREFUL = 2.0
"""c of Theorems 2 and 3: alpha_0 = 1 / (c L (1 + kappa))."""


def theorem1(horizons: tuple[int, ...], seed: int) -> tuple[Grid, Figure]:
    """Loss under the PL condition."""
    problem = theory.Quadratic.spaced(DIMENSION, CONDITION_NUMBER)
    rows = []
    for noise in NOISES:
        for T in horizons:
            decay = theory.Decay(T=T, M=M, N=N)
            run = theory.simulate(
                problem, decay.lrs(theory.initial_lr(noise, smoothness=problem.smoothness)), noise, seed=seed
            )
            known = {
                "smoothness": problem.smoothness,
                "pl_constant": problem.pl_constant,
                "first_gap": float(run.gap[0]),
            }
            step_by_step = float(theory.recursion_bound(run.lrs, noise, **known)[-1])
            derived, printed = (
                bound(decay, noise, **known) for bound in (theory.theorem1_bound, theory.theorem1_printed)
            )
            last = float(run.gap[-1])
            rows.append(
                (
                    noise.relative,
                    noise.absolute,
                    T,
                    last,
                    step_by_step,
                    derived,
                    printed,
                    last <= derived,
                    last <= printed,
                )
            )
    columns = ("kappa", "sigma", "T", "E f - f*", "bound, step by step", "bound", "bound as printed")
    grid = Grid(
        "Theorem 1: loss",
        (*columns, "holds", "printed holds"),
        rows,
        "SGD on a quadratic, 512 runs. The printed bound lost its factor L sigma / 2, so much noise breaks it.",
    )
    sigma = NOISES[1].absolute
    return grid, _figure(f"Theorem 1, sigma = {sigma:g}", grid, "E f - f*", [row for row in rows if row[1] == sigma])


def theorem2(horizons: tuple[int, ...], seed: int) -> tuple[Grid, Figure]:
    """Gradient, with the PL condition and without."""
    noise, rows = theory.Noise(absolute=0.1), []
    for name, problem in (
        ("quadratic", theory.Quadratic.spaced(DIMENSION, CONDITION_NUMBER)),
        ("cosines, without PL", theory.Waves.spaced(DIMENSION, CONDITION_NUMBER)),
    ):
        for T in horizons:
            decay = theory.Decay(T=T, M=M, N=N)
            lrs = decay.lrs(theory.initial_lr(noise, smoothness=problem.smoothness, c=CAREFUL))
            run = theory.simulate(problem, lrs, noise, start=2.5, seed=seed)
            decrease = float(run.gap[0] - run.gap[-1])
            bound = theory.theorem2_bound(decay, noise, smoothness=problem.smoothness, decrease=decrease, c=CAREFUL)
            mean = run.weighted_squared_gradient
            rows.append((name, T, run.least_squared_gradient, mean, bound, mean <= bound))
    columns = ("function", "T", "least E|grad f|^2", "weighted mean", "bound", "holds")
    grid = Grid(
        "Theorem 2: gradient", columns, rows, "The proof bounds the mean with weights alpha_t, and so the minimum."
    )
    without = [row for row in rows if row[0] != "quadratic"]
    return grid, _figure("Theorem 2, without the PL condition", grid, "weighted mean", without)


def theorem3(horizons: tuple[int, ...], seed: int) -> tuple[Grid, Figure]:
    """Meta-gradient along Algorithm 1."""
    rows = []
    for T in horizons:
        track = theory_rates.meta_track(theory.Decay(T=T, M=M, N=N), CAREFUL, seed)
        least, bound = float(track.running_minimum[-1]), float(track.bound[-1])
        sure = float((track.meta_decrease >= track.sure_decrease - 1e-12).double().mean())
        first = float(track.squared_norms[:, 0].mean())
        rows.append((T, first, least, bound, least <= bound, track.meets_assumptions, f"{sure:.0%}"))
    columns = ("T", "first |grad F|^2", "least", "bound", "holds", "conditions met", "steps as the proof says")
    grid = Grid(
        "Theorem 3: meta-gradient",
        columns,
        rows,
        "The constants rho, G and L_A are measured along the run: for an LSTM nobody can know them before it.",
    )
    return grid, _figure("Theorem 3", grid, "least", rows)


def _figure(title: str, grid: Grid, measured: str, rows: Sequence[Sequence[Any]]) -> Figure:
    """The left-hand side of a theorem and its bounds, over the horizon."""
    names = {"measured": measured, **{name: name for name in grid.columns if name.startswith("bound")}}

    def column(name: str) -> list[float]:
        return [row[grid.columns.index(name)] for row in rows]

    return Figure(title, "T", {label: (column("T"), column(name)) for label, name in names.items()})


def measure(scale: str, seed: int) -> tuple[list[Grid], list[Figure]]:
    """All three theorems, and their rates."""
    loss, gradient = (theorem(HORIZONS[scale], seed) for theorem in (theorem1, theorem2))
    meta_gradient = theorem3(META_HORIZONS[scale], seed)
    rates = [*theory_rates.loss(HORIZONS[scale], seed), *theory_rates.gradient(HORIZONS[scale], seed)]
    rates += theory_rates.meta_gradient(META_HORIZONS[scale], seed)
    grids = [loss[0], gradient[0], meta_gradient[0], *theory_rates.grids(rates)]
    return grids, [loss[1], gradient[1], meta_gradient[1], theory_rates.figure(rates)]


RECIPE = Recipe(
    "theory",
    "Convergence",
    "Under decaying LRs the loss of SGD falls as ln^2(T)/T where the PL condition holds, and the meta-gradient as 1/ln T. "
    "The squared gradient falls as 1/sqrt(T) under noise where c grows as sqrt(T), and as 1/T without.",
    nothing,
    measure=measure,
    notes={
        "all": (
            "The bounds are those the appendix derives, its slips corrected: docs/theory.md lists where print and proof part.",
            "The meta-gradient vanishes along with the LR, so that it becomes small does not say that the schedule is good.",
        )
    },
)
