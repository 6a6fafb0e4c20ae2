"""Validation losses: where they stop falling, steps get shorter.

A training loss goes on falling while a network over-fits. A validation loss tells: after three in a row that are not below the
lowest so far, every LR is a tenth of what it would be, after three more a hundredth. A new lowest one undoes the last cut.

So a network that over-fits stays near where it was good. One whose loss was only level and noisy, as it often is while the LR is
high, mostly finds a new lowest loss, since shorter steps mean less noise; then it goes on as before.
"""

import math
from dataclasses import dataclass

IN_A_ROW = 3
"""Losses that are not below the lowest before anything is done; then as many again."""

MOST_CUTS = 3
"""Times that steps are shortened at most: LRs never become 0, and a training can come back."""


@dataclass
class Validation:
    """What is known of the validation losses so far.

    lowest: of all; infinity before the first. waited: losses since it, or since steps were shortened. cuts: how often they were
    shortened, and not made longer again. has_fallen: whether a loss was below the first one.
    """

    lowest: float = math.inf
    waited: int = 0
    cuts: int = 0
    has_fallen: bool = False

    @property
    def share(self) -> float:
        """What every LR is multiplied by."""
        return float(10.0**-self.cuts)

    def see(self, loss: float, *, is_training: bool = True) -> None:
        """Read one more loss. Before the training, it is only something to stay below.

        >>> seen, shares = Validation(), []
        >>> for loss in (3.0, 2.0, 2.1, 2.0, 2.5, 2.2, 1.9, 1.8):
        ...     seen.see(loss)
        ...     shares.append(seen.share)
        >>> shares
        [1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 1.0, 1.0]
        """
        if loss < self.lowest:
            self.has_fallen = self.lowest < math.inf
            self.lowest, self.waited, self.cuts = loss, 0, max(0, self.cuts - 1)
        elif is_training:
            self.waited += 1
            if self.waited >= IN_A_ROW:
                self.waited, self.cuts = 0, min(MOST_CUTS, self.cuts + 1)
