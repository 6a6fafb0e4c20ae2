"""The law of the default on the table of trainings that it was chosen on.

r = 0.13 (T / 500)^-0.1 (n / 10,000)^-0.19 max(1, L / 4)^-1.2 was chosen by hand from a coarse grid of laws, by their mean gap on
results/table (short.npz and long.npz), among those that give 0.025 to 0.045 on five networks 100 to 1,000 times larger than any
in the table: ResNet-18 at 10 and 30 epochs, MobileNetV2, an LSTM and a transformer on Penn Treebank. There, sizes near 0.03 had
been level with or better than decays of two or three LRs, in runs that left no records. `laws` compares it with the law that is
fitted freely. Powers of the loss were chosen on another table, powers.npz, which the history has (commit 96fdb0853c23). The share for
trained networks is a judgement; results/table/tuning.npz speaks against it.
"""

import math

from torch import Tensor

from experiments import results
from mlrsnet.default import Default
from mlrsnet_lab.table.file import TrainingTable, merged
from mlrsnet_lab.table.law import features, responses

TABLES = ("short", "long")
KNOWS = ("horizon", "parameters", "depth")
"""What the law knows, beside a constant."""


def table() -> TrainingTable:
    """The table that the law was fitted to."""
    return merged([TrainingTable.load(results.RESULTS / "table" / f"{name}.npz") for name in TABLES])


def gaps_of(rows: TrainingTable | None = None, times: float = 1.0) -> Tensor:
    """(rows,) of the law with its sizes multiplied; on the table that it was fitted to, or another."""
    rows, law = table() if rows is None else rows, Default()
    x = features(rows, KNOWS)
    theta = x.new_tensor([math.log(times * law.size), law.horizon_power, law.size_power, law.depth_power])
    return responses(rows)[("weighted", law.fall, law.rise)].at(x @ theta)
