"""Steps relative to the weights for many trainings at once, measured from the steps that were taken.

    alpha_t = r_t c(m) / sqrt(mean of x over past steps),   x_s = (|D_s| / |w_s|)^2,   c(m) = sqrt((1 - m) / (1 + m))

The step of plain SGD is never longer than r_t c(m) |w_t|: it is known before it is taken.

D_s: what step s would have subtracted at an LR of 1, (w_s - w_{s+1}) / alpha_s. m: the momentum, or Adam's beta1. The mean looks
back over the last tenth of the training. How the matrices of a network come together in x is its structure:

- `together`: sum of |D_l|^2 / sum of |w_l|^2 over the matrices l
- `each`: the mean over the matrices of (|D_l| / |w_l|)^2
- `middle`: the geometric mean of the same
- `weighted`: as `together`, but matrix l counts min(m, n) / m for its m rows and n columns, as if it were square, and begins with
  a length of at most 3 sqrt(m / 3), from which it may grow: an embedding with many rows, or with torch's initialisation, does not
  outweigh the others
- `layer`: every matrix has its own LR; vectors have that of `together`
- `absolute`: r is the LR, carried over to the optimizer by `gamma.optimizer_scale`

A matrix is a tensor of two or more dimensions. Its length counts as at least sqrt(rows / 3), that of torch's own initialisation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet.horizon.rows import Rows
from mlrsnet.horizon.updates import SGD, State, Update

STRUCTURES = ("absolute", "together", "each", "middle", "layer", "weighted")
LONGEST = 9.0
"""|w|^2 begins as at most this many times that of torch's initialisation."""

WINDOW = 0.1
"""How far the mean looks back, as a share of the training."""

EARLY = 0.1
"""The progress at which early observations are kept."""

SMALLEST = 1e-30
"""Squared lengths are at least this: a matrix without a gradient does not move."""


@dataclass(frozen=True)
class Layout:
    """Where the matrices are in a row of weights: (size,) the matrix of every weight, and the floors (L,) of |w|^2.

    Weights of vectors and padding belong to no matrix, and have the number L.
    """

    owner: Tensor
    floors: Tensor
    shares: Tensor

    @classmethod
    def of(cls, rows: Rows) -> "Layout":
        """The layout of a population's rows."""
        owner = torch.full(rows.weights.shape[1:], -1, device=rows.weights.device)
        floors: list[float] = []
        shares: list[float] = []
        for view in rows.views.values():
            if view.ndim > 2:  # the first dimension is the member
                start = view.storage_offset()
                owner[start : start + view[0].numel()] = len(floors)
                floors.append(view.shape[1] / 3)
                shares.append(min(1.0, view[0, 0].numel() / view.shape[1]))
        owner[owner < 0] = len(floors)
        numbers = torch.tensor([floors, shares], dtype=rows.weights.dtype, device=owner.device)
        return cls(owner, *numbers)

    @property
    def count(self) -> int:
        """The number of matrices."""
        return len(self.floors)

    def squares(self, values: Tensor) -> Tensor:
        """(members, L) squared lengths of the matrices."""
        sums = values.new_zeros(len(values), self.count + 1)
        return sums.index_add_(1, self.owner, values.square())[:, :-1]


class Measured:
    """Another update with measured steps; `lr` of `apply` is r. Each training has its own structure.

    Args:
        inner: the update.
        layout: of the weights.
        structures: one of `STRUCTURES` per training.
    """

    def __init__(self, inner: Update, layout: Layout, structures: Sequence[str]) -> None:
        self.inner, self.layout = inner, layout
        codes = [STRUCTURES.index(structure) for structure in structures]
        self.codes = torch.tensor(codes, device=layout.owner.device).unsqueeze(1)

    @property
    def scale(self) -> Tensor:
        """(trainings,) c(m), or the optimizer's scale for absolute LRs."""
        relative = torch.full_like(self.layout.floors[:1], noise_scale(self.inner)).expand(len(self.codes))
        return torch.where(self.codes[:, 0] == 0, torch.full_like(relative, self.inner.scale), relative)

    def begin(self, weights: Tensor) -> State:
        """Nothing measured yet. `plan` has to follow."""
        numbers = weights.new_zeros(len(weights), self.layout.count + 1)
        return {
            **self.inner.begin(weights),
            "sum": numbers,
            "total": weights.new_zeros(()),
            "keep": weights.new_zeros(()),
            "step": weights.new_zeros(()),
            "early": weights.new_zeros(()),
            "first": torch.ones_like(numbers[:, 0]),
            "shrink": torch.ones_like(numbers[:, 1:]),
            "before": torch.zeros_like(weights),
            "cosine": torch.zeros_like(numbers[:, 0]),
            "early_cosine": torch.zeros_like(numbers[:, 0]),
            "early_growth": torch.zeros_like(numbers[:, 0]),
            "early_x": torch.zeros_like(numbers[:, 0]),
        }

    def plan(self, state: State, total_steps: int) -> None:
        """Set the horizon."""
        state["keep"].fill_(math.exp(-1 / (WINDOW * total_steps)))
        state["early"].fill_(max(1, round(EARLY * total_steps)))

    def apply(self, weights: Tensor, gradients: Tensor, state: State, lr: Tensor, weight_decay: Tensor) -> None:
        """Take one step, in place."""
        layout, before = self.layout, weights.clone()
        squares = layout.squares(weights)
        shrink = (LONGEST * layout.floors / squares.clamp(min=SMALLEST)).clamp(max=1.0)
        state["shrink"].copy_(torch.where((state["step"] == 0) & (self.codes == 5), shrink, state["shrink"]))
        lengths = torch.maximum(squares * state["shrink"], layout.floors)
        alpha = lr * self._ratio(state, lengths, layout.squares(gradients))  # (members, L + 1)
        spread = alpha.index_select(1, layout.owner)
        self.inner.apply(weights, gradients, state, spread, weight_decay)
        moved = before - weights
        steps = layout.squares(moved) / alpha[:, :-1].square().clamp(min=SMALLEST)
        self._observe(state, moved, lengths, steps)
        state["sum"].mul_(state["keep"]).add_(self._x(steps, lengths) * (1 - state["keep"]))
        state["total"].mul_(state["keep"]).add_(1 - state["keep"])
        state["step"].add_(1)

    def _ratio(self, state: State, lengths: Tensor, gradients: Tensor) -> Tensor:
        """(members, L + 1) 1 / sqrt(mean x). Before anything is measured, short for SGD's and for Adam's directions."""
        n = (self.layout.owner < self.layout.count).sum()
        first = (lengths.sum(1) / torch.maximum(gradients.sum(1), n.to(lengths))).sqrt().unsqueeze(1)
        mean = state["sum"] / state["total"].clamp(min=SMALLEST)
        ratio = torch.where(state["step"] > 0, mean.clamp(min=SMALLEST).rsqrt(), first)
        if is_plain(self.inner):
            ratio = torch.minimum(ratio, self._x(gradients, lengths).clamp(min=SMALLEST).rsqrt())
        return torch.where(self.codes == 0, 1.0, ratio)

    def _x(self, steps: Tensor, lengths: Tensor) -> Tensor:
        """(members, L + 1) the squared relative length of a step at an LR of 1, by the structure of each training."""
        relative = steps / lengths
        together = (steps.sum(1) / lengths.sum(1)).unsqueeze(1)
        middle = relative.clamp(min=SMALLEST).log().mean(1, keepdim=True).exp()
        one = torch.where(self.codes == 2, relative.mean(1, keepdim=True), together)
        one = torch.where(self.codes == 3, middle, one)
        shares = self.layout.shares
        weighted = ((steps * shares).sum(1) / (lengths * shares).sum(1)).unsqueeze(1)
        one = torch.where(self.codes == 5, weighted, one)
        return torch.cat((torch.where(self.codes == 4, relative, one), one), dim=1)

    def _observe(self, state: State, moved: Tensor, lengths: Tensor, steps: Tensor) -> None:
        """Keep the cosine of successive steps, the growth of the weights and x, as they are early in the training."""
        product = (moved * state["before"]).sum(1)
        cosine = product / (moved.norm(dim=1) * state["before"].norm(dim=1)).clamp(min=SMALLEST)
        state["before"].copy_(moved)
        state["cosine"].lerp_(cosine, 2 / (2 + state["step"]))
        whole = lengths.sum(1)
        state["first"].copy_(torch.where(state["step"] == 0, whole, state["first"]))
        now = state["step"] == state["early"]
        found = {"cosine": state["cosine"], "growth": (whole / state["first"]).sqrt(), "x": steps.sum(1) / whole}
        for name, value in found.items():
            state[f"early_{name}"].copy_(torch.where(now, value, state[f"early_{name}"]))


def is_plain(update: Update) -> bool:
    """Whether a step is the gradient, but for weight decay.

    >>> from mlrsnet.horizon.updates import SGD
    >>> is_plain(SGD()), is_plain(SGD(momentum=0.9))
    (True, False)
    """
    return type(update) is SGD and not update.momentum


def noise_scale(update: Update) -> float:
    """c(m) = sqrt((1 - m) / (1 + m)): how much shorter steps have to be where momentum makes them agree.

    >>> from mlrsnet.horizon.updates import SGD
    >>> round(noise_scale(SGD(momentum=0.9)), 4), noise_scale(SGD())
    (0.2294, 1.0)
    """
    m = float(getattr(update, "momentum", 0.0) or getattr(update, "beta1", 0.0))
    return math.sqrt((1 - m) / (1 + m))
