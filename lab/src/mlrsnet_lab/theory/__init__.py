"""Section 5.1 made runnable: the bounds of Theorems 1, 2 and 3 beside simulations that meet their assumptions.

The bounds are those the appendix derives, its slips corrected; `docs/theory.md` lists what differs from print.
"""

from mlrsnet_lab.theory.bounds import (
    Decay,
    MetaAdam,
    initial_lr,
    recursion_bound,
    theorem1_bound,
    theorem1_printed,
    theorem2_bound,
    theorem3_bound,
)
from mlrsnet_lab.theory.meta import MetaTrack, track_meta_gradient
from mlrsnet_lab.theory.problems import Noise, Problem, Quadratic, Waves
from mlrsnet_lab.theory.rates import Fit, Rate, fit_exponent, fit_line
from mlrsnet_lab.theory.simulation import Simulation, simulate

__all__ = [
    "Decay",
    "Fit",
    "MetaAdam",
    "MetaTrack",
    "Noise",
    "Problem",
    "Quadratic",
    "Rate",
    "Simulation",
    "Waves",
    "fit_exponent",
    "fit_line",
    "initial_lr",
    "recursion_bound",
    "simulate",
    "theorem1_bound",
    "theorem1_printed",
    "theorem2_bound",
    "theorem3_bound",
    "track_meta_gradient",
]
