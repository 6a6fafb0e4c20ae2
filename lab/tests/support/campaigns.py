"""A small campaign with all that makes one run wait for another, and a watcher that kills processes."""

import os
import random
import re
import signal

from runs import tiny

from mlrsnet_lab import records
from mlrsnet_lab.recipes import Cell, Choice, Recipe
from mlrsnet_lab.watch import Watcher

COLUMN = "Digits"
START = tiny(epochs=1, seed=7).to_dict()
CELLS = [
    Cell("Chosen", COLUMN, tiny(schedule="cosine"), choice=Choice("end", (0.9, 0.0), 1)),
    Cell("Learns", COLUMN, tiny(schedule="mlr-snet", schedule_options={"every": 5})),
    Cell("Uses", COLUMN, tiny(schedule="learned"), learned_in=("Learns", COLUMN)),
    Cell("Tuned, SGD", COLUMN, tiny(start=START)),
    Cell("Tuned, Adam", COLUMN, tiny(start=START, optimizer="adam", lr=0.003)),
    Cell("Long", COLUMN, tiny(epochs=120, model_options={"width": 64, "depth": 2})),
]
CAMPAIGN = Recipe("mine", "Mine", "None.", lambda scale: CELLS, seeds=(0,))
RUNS = len(CELLS) + 2  # with two trials


class Killer(Watcher):
    """Kills the processes of runs, at random moments: after some of their epochs. The long run is killed once for certain."""

    def __init__(self, kills, seed=0):
        self.left, self.random, self.killed = kills, random.Random(seed), []
        self.long_left = self.random.randrange(2, 20)

    def watch(self, planned):
        found = re.search(r"process (\d+)\)$", planned.title)
        return [Shot(self, int(found[1]), planned.folder.parent.name == "long")]

    def decides(self, is_long):
        if is_long and self.long_left:
            self.long_left -= 1
            return self.long_left == 0
        return not is_long and self.left > 0 and self.random.random() < 0.5


class Shot(Watcher):
    def __init__(self, killer, process, is_long):
        self.killer, self.process, self.is_long = killer, process, is_long

    def epoch(self, line, losses, lrs):
        killer = self.killer
        if self.process not in killer.killed and killer.decides(self.is_long):
            killer.left -= not self.is_long
            killer.killed.append(self.process)
            os.kill(self.process, signal.SIGKILL)


def comparable(folder):
    """What equal campaigns share: every run, once."""
    found = [records.read(path) for path in records.find(folder)]
    assert len({record.folder for record in found}) == len(found)
    for record in found:
        record.data.pop(
            "commit"
        )  # whoever edits the code while its tests run changes it for processes that start later
    return {str(record.folder.relative_to(folder)): record.comparable() for record in found}


def resumed(folder):
    """The runs that went on from a checkpoint."""
    sessions = {path: records.read(path).data["sessions"] for path in records.find(folder)}
    return [path for path, lines in sessions.items() if any(line["from_step"] for line in lines)]


CHOSEN = Choice("end", (0.9, 0.0), 1)
FIRST = [
    Cell("Learns", COLUMN, tiny(schedule="mlr-snet", schedule_options={"every": 5})),
    Cell("Uses", COLUMN, tiny(schedule="learned"), learned_in=("Learns", COLUMN)),
    Cell("Chosen", COLUMN, tiny(schedule="cosine"), choice=CHOSEN),
    Cell("Only here", COLUMN, tiny(schedule="fixed")),
]
OTHER = "Numbers"
SECOND = [
    Cell("Source", OTHER, FIRST[0].spec),
    Cell("Same source", OTHER, FIRST[1].spec, learned_in=("Source", OTHER)),
    Cell("Same trials", OTHER, FIRST[2].spec, choice=CHOSEN),
    Cell("Second source", OTHER, tiny(schedule="mlr-snet", schedule_options={"every": 7})),
    Cell("Another source", OTHER, FIRST[1].spec, learned_in=("Second source", OTHER)),
    Cell("Other trials", OTHER, FIRST[2].spec, choice=Choice("end", (0.9, 0.5), 1)),
]
PAIR = {
    "a": Recipe("a", "The first", "None.", lambda scale: FIRST, seeds=(0,)),
    "b": Recipe("b", "The second", "None.", lambda scale: SECOND, seeds=(0,)),
}
"""Two recipes that share runs: a source, what is learned from it, trials and what they choose."""

PAIR_RUNS, PAIR_EQUAL = 6 + 10, 6
"""With trials; equal are two sources, two of their users, two choices with three trials, less one of each."""


class Trained(Watcher):
    """Notes the folders of the runs that are trained, in order; a run that is only read has no epochs."""

    def __init__(self):
        self.folders = []

    def watch(self, planned):
        return [Trains(self, planned.folder)]


class Trains(Watcher):
    def __init__(self, trained, folder):
        self.trained, self.folder = trained, folder

    def epoch(self, line, losses, lrs):
        if self.folder not in self.trained.folders:
            self.trained.folders.append(self.folder)
