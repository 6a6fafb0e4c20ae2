"""TensorBoard: loss and LR of steps; gamma, hypergradient, losses and metric of epochs."""

from pathlib import Path
from typing import Any

from mlrsnet_lab.horizon import Comparison, HorizonTrainer
from mlrsnet_lab.meta_training import before_this_process
from mlrsnet_lab.records import Record
from mlrsnet_lab.watch import Watcher

POINTS = 100
"""About how many steps of an epoch are drawn at most."""


class Board(Watcher):
    """Writes event files to `folder`. A resumed run continues its curves."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open_writer = folder, _writer()
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


class MetaTrainingBoard:
    """A full-horizon meta-training: the fitness of each generation, the gaps and the LR curve of each comparison."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open_writer = folder, _writer()
        self.writer: Any = None
        self.shown = 0

    def __call__(self, trainer: HorizonTrainer) -> None:
        """Draw a generation. What was drawn after the checkpoint that a run resumes from is hidden."""
        line = trainer.history[-1]
        if self.writer is None:
            self.writer = self.open_writer(str(self.folder), purge_step=line.number if line.number > 1 else None)
            self.shown = before_this_process(trainer)
        for name in ("fitness", "better_half", "diverged"):
            self.writer.add_scalar(f"generation/{name}", getattr(line, name), line.number)
        for found in trainer.comparisons[self.shown :]:
            for kind in found.tuned:
                self.writer.add_scalar(f"gap to {kind}/one LR chosen on these tasks", found.gap(kind), found.number)
                self.writer.add_scalar(f"gap to {kind}/oracle of each task", found.gap(kind, oracle=True), found.number)
            self.writer.add_figure("LR", lr_figure(found), found.number)
        self.shown = len(trainer.comparisons)
        self.writer.flush()

    def close(self) -> None:
        """Close the file, at the end or after an interruption."""
        if self.writer is not None:
            self.writer.close()


def lr_figure(found: Comparison) -> Any:
    """The LR over the progress of the first held-out task."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot([i / len(found.lrs) for i in range(len(found.lrs))], found.lrs)
    axes.set(xlabel="progress", ylabel="LR", title=f"generation {found.number}", ylim=(0, None))
    axes.grid(alpha=0.3)
    return figure


def _writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError("TensorBoard needs tensorboard, which is not installed: pip install tensorboard") from None
    return SummaryWriter
