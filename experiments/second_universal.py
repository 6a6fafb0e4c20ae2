"""`universal-2`, the default: a law for the size of a step, and a decay that reads the loss. Nothing in it is a network.

The law r = 0.13 (T / 500)^-0.1 (n / 10,000)^-0.19 max(1, L / 4)^-1.2 was chosen by hand from a coarse grid of laws, by their mean
gap on results/table (short.npz and long.npz), among those that give 0.025 to 0.045 on five networks 100 to 1,000 times larger
than any in the table: ResNet-18 at 10 and 30 epochs, MobileNetV2, an LSTM and a transformer on Penn Treebank. There, sizes near
0.03 had been level with or better than decays of two or three LRs, in runs that left no records. `laws` compares it with the law
that is fitted freely. Powers of the loss: results/table/powers.npz. The share for trained networks is a judgement;
results/table/tuning.npz speaks against it.
"""

import math
from pathlib import Path

from torch import Tensor

from experiments import results
from mlrsnet import Card, DecayNet, Gamma, Schedule
from mlrsnet._files import names
from mlrsnet.lab.table.columns import READING
from mlrsnet.lab.table.file import Table, merged
from mlrsnet.lab.table.law import features, responses

NAME = "universal-2"
GAMMA = Gamma("measured", value=0.13, horizon_power=-0.1, size_power=-0.19, depth_power=-1.2, caution=0.1)
TABLES = ("short", "long")
KNOWS = ("horizon", "parameters", "depth")
"""What the law knows, beside a constant."""


def table() -> Table:
    """The table that the law was fitted to."""
    return merged([Table.load(results.RESULTS / "table" / f"{name}.npz") for name in TABLES])


def shipped_gaps(rows: Table | None = None, times: float = 1.0) -> Tensor:
    """(rows,) of the law with its sizes multiplied; on the table that it was fitted to, or another."""
    rows = table() if rows is None else rows
    x = features(rows, KNOWS)
    theta = x.new_tensor([GAMMA.value, 1.0, 1.0, 1.0]).log()
    theta[0] += math.log(times)
    theta[1:] = x.new_tensor([GAMMA.horizon_power, GAMMA.size_power, GAMMA.depth_power])
    return responses(rows)[("weighted", *READING)].at(x @ theta)


def schedule() -> Schedule:
    """The default schedule."""
    rows = table()
    card = Card(
        name=NAME,
        description=(
            "Steps relative to the weights, as long as a law says, in a linear decay with a warm-up. They become shorter as the "
            "loss falls, and when it rises again."
        ),
        learned_on=f"{len(rows)} small trainings under {len(rows.columns)} step sizes each (results/table)",
        optimizer="SGD, SGD with momentum, Adam, AdamW",
        gamma=GAMMA,
        results={
            "mean log gap to the best absolute decay of each training, on the table": round(
                float(shipped_gaps().mean()), 3
            )
        },
        versions={},  # nothing in it depends on them
    )
    return Schedule(DecayNet(*READING), card)


def write(path: Path | None = None) -> None:
    """Write the shipped file."""
    schedule().save(path or names.SHIPPED / f"{NAME}{names.SUFFIX}")


if __name__ == "__main__":
    write()
