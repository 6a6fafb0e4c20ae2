"""TensorBoard for a full-horizon meta-training."""

from pathlib import Path
from typing import Any

from mlrsnet_lab.board import summary_writer
from mlrsnet_lab.horizon import HorizonTrainer
from mlrsnet_lab.meta_training import before_this_process


class MetaTrainingBoard:
    """A full-horizon meta-training: the fitness of each generation, the gaps of each comparison."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.open_writer = folder, summary_writer()
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
        self.shown = len(trainer.comparisons)
        self.writer.flush()

    def close(self) -> None:
        """Close the file, at the end or after an interruption."""
        if self.writer is not None:
            self.writer.close()
