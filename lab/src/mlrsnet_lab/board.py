"""TensorBoard: loss and LR of steps; gamma, hypergradient, losses and metric of epochs."""

from pathlib import Path
from typing import Any

from mlrsnet_lab.records import Record
from mlrsnet_lab.watch import Watcher

POINTS = 100
"""About how many steps of an epoch are drawn at most."""


class Board(Watcher):
    """Writes event files to `folder`. A resumed run continues its curves."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open_writer = folder, summary_writer()
        self.writer: Any = None

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Open the file. What was drawn of an unfinished epoch is hidden, because it will be drawn again."""
        if step < total_steps:
            drawn = step - step % record.data["steps_per_epoch"]
            self.writer = self.open_writer(str(self.folder), purge_step=drawn + 1 if step else None)

    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        """Draw the curves of one epoch."""
        first, stride = line["step"] - len(losses) + 1, max(1, len(losses) // POINTS)
        for offset in range(0, len(losses), stride):
            self.writer.add_scalar("step/loss", losses[offset], first + offset)
            self.writer.add_scalar("step/lr", lrs[offset], first + offset)
        for name, value in line.items():
            if name not in ("epoch", "step", "seconds", "lr"):
                self.writer.add_scalar(f"epoch/{name}", value, line["step"])
        self.writer.flush()

    def end(self, record: Record) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()


def summary_writer() -> Any:
    """torch's, which needs the package tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError("TensorBoard needs tensorboard, which is not installed: pip install tensorboard") from None
    return SummaryWriter
