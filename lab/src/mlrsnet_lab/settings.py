"""Where runs are made and who hears of them: all that is not in their specs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlrsnet_lab import datasets
from mlrsnet_lab.executors import Counts, Executor
from mlrsnet_lab.watch import Planned, Watch, Watcher


def nobody(planned: Planned) -> Sequence[Watcher]:
    """No watchers."""
    return ()


def unheard(*news: object) -> None:
    """For nobody to hear."""


@dataclass(frozen=True)
class Settings:
    """One object from the command line to the run. None of it changes a training's numbers, but for the kind of device.

    Args:
        device: `cpu`, `cuda`, `cuda:1`, ..., or `auto`: a GPU if there is one.
        root: where the data is; see `datasets.load`.
        checkpoint_seconds: a kill loses about this much work at most.
        tensorboard: write event files too, beside each record.
        executor: makes several runs at once.
        watch: returns the watchers of a run of several.
        tell: is called with one line about what concerns all of them.
        count: is called with the number of runs that are running, done and given again whenever one changes.
        overall: is called with how many runs have ended, and how many there are, whenever one ends.

    >>> Settings(device="cpu").executor.name
    'local'
    """

    device: str = "auto"
    root: Path | None = None
    checkpoint_seconds: float = 20.0
    tensorboard: bool = False
    executor: Executor = field(default_factory=Executor)
    watch: Watch = nobody
    tell: Callable[[str], object] = unheard
    count: Callable[[Counts], object] = unheard
    overall: Callable[[int, int], object] = unheard

    def elsewhere(self) -> "Settings":
        """For a run in another process: paths are absolute, and nobody is there who could hear."""
        return replace(
            self, root=datasets.data_root(self.root), watch=nobody, tell=unheard, count=unheard, overall=unheard
        )


DEFAULT = Settings()
