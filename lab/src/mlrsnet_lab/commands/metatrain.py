"""`mlrsnet metatrain`: a bar, and for whole trainings the LRs and the gaps to hand-designed schedules."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID

from mlrsnet.cli.parser import Parser
from mlrsnet_lab import checks
from mlrsnet_lab.board import Board
from mlrsnet_lab.commands.options import (
    DATASET,
    add_data,
    add_device,
    add_executor,
    add_field,
    add_tensorboard,
    given,
    settings,
    together,
)
from mlrsnet_lab.commands.progress import Bar, bars
from mlrsnet_lab.horizon import Comparison, HorizonTrainer
from mlrsnet_lab.meta_board import MetaTrainingBoard
from mlrsnet_lab.meta_specs import OBJECTIVES, PRESETS, GreedySpec, HorizonSpec, MetaSpec, make_meta_spec
from mlrsnet_lab.meta_training import before_this_process, learn_greedy, learn_horizon
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec

OWN: dict[str, dict[str, str]] = {
    "greedy": {
        "model": "network to train, such as resnet18",
        "optimizer": "sgd, sgdm, adam or adamw",
        "epochs": "of the training",
        "batch_size": "pictures per step",
        "weight_decay": "of the optimizer",
        "every": "steps between meta-updates, T_val",
        "net": "the schedule's network: lstm or mlp",
    },
    "horizon": {
        "generations": "of small trainings",
        "tasks": "different trainings per generation",
        "members": "copies of each training, an even number",
        "sigma": "size of the perturbations",
        "begin": "a schedule to begin as, such as universal-lstm",
        "hidden": "size of the schedule's network",
        "anneal": "linear, or none: the network starts as a fixed LR and learns to anneal",
        "average": "decay of the average over generations that becomes the schedule",
        "gamma": "range of the LR",
        "fitness": "what to minimise at the end: calibrated or loss",
        "together": "trainings of a generation side by side at most, 0 for all that can; fewer means more to spread",
        "held_out": "other small trainings, which only measure",
    },
}
"""Options that only one objective has; their defaults are those of its spec."""

SHARED = ("task", "seed", "name", "meta_lr")


def add(learn: Parser) -> None:
    """Add its options."""
    _add_shared(learn)
    for objective, options in OWN.items():
        group = learn.add_argument_group(f"only with --objective {objective}")
        for name, what in options.items():
            add_field(group, OBJECTIVES[objective], name, what, "none" if name == "begin" else None)
    add_device(learn)
    add_data(learn)
    add_tensorboard(learn)
    add_executor(learn, "processes that train a generation,")
    learn.set_defaults(run=_run, under_torchrun=True)


def _add_shared(learn: argparse.ArgumentParser) -> None:
    learn.add_argument(
        "--objective",
        metavar="NAME",
        help="greedy: Algorithm 1, one step ahead, in one training; horizon: the end of many small trainings "
        "(default: greedy, or that of the preset)",
    )
    learn.add_argument(
        "--preset",
        metavar="NAME",
        help=f"a named meta-training of the objective horizon: {' or '.join(PRESETS)}; options override it",
    )
    learn.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        default=Path("learned.safetensors"),
        help="a new file for the schedule (default: %(default)s)",
    )
    learn.add_argument("--name", help="for the schedule's card (default: the task's)")
    add_field(learn, RunSpec, "task", DATASET)
    learn.add_argument(
        "--classes", metavar="LIST", help="only these classes of the task, such as 01234 or 3,17,42 (default: all)"
    )
    add_field(learn, RunSpec, "seed", "of everything random")
    defaults = ", ".join(f"{objective}: {kind.meta_lr:g}" for objective, kind in OBJECTIVES.items())
    learn.add_argument(
        "--meta-lr", metavar="X", type=float, help=f"LR of the Adam that trains the schedule (default: {defaults})"
    )


def _run(arguments: argparse.Namespace) -> None:
    preset = _preset(arguments)
    objective = _objective(arguments, preset)
    fields = given(arguments, (*SHARED, *OWN[objective]))
    if arguments.classes is not None:
        fields["task_options"] = {"classes": _classes(arguments.classes)}
    if preset is None:
        fields.setdefault("name", _name(arguments))
    spec, chosen = make_meta_spec(objective, fields, preset), settings(arguments)
    if objective != "horizon" and (chosen.executor.name != "local" or chosen.executor.jobs is not None):
        raise ValueError("--executor and --jobs belong to --objective horizon, got --objective greedy: leave one out")
    with together(arguments.device):
        show_metatrain(spec, arguments.out, chosen)


def _preset(arguments: argparse.Namespace) -> str | None:
    return None if arguments.preset is None else checks.one_of("--preset", arguments.preset, PRESETS)


def _objective(arguments: argparse.Namespace, preset: str | None) -> str:
    """The objective. Raises on options that belong to the other one."""
    asked = arguments.objective or ("horizon" if preset else "greedy")
    objective = checks.one_of("--objective", asked, OBJECTIVES)
    owners = {name: owner for owner, options in OWN.items() for name in options}
    used = given(arguments, owners) | ({"preset": preset} if preset else {})
    for name in used:
        owner = owners.get(name, "horizon")
        if owner != objective:
            raise ValueError(
                f"--{name.replace('_', '-')} belongs to --objective {owner}, got --objective {objective}: leave one out"
            )
    return objective


def _name(arguments: argparse.Namespace) -> str:
    task = arguments.task or RunSpec.task
    return task if arguments.classes is None else f"{task} {arguments.classes}"


def _classes(text: str) -> list[int]:
    parts = text.split(",") if "," in text else list(text)
    if not parts or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(
            f"--classes must be digits written together, such as 01234, or numbers with commas, got {text!r}"
        )
    return [int(part) for part in parts]


def show_metatrain(spec: MetaSpec, out: Path, settings: Settings) -> None:
    """Learn a schedule into `out` with a progress bar; end with its card."""
    try:
        if isinstance(spec, GreedySpec):
            _show_greedy(spec, out, settings)
        else:
            _show_horizon(spec, out, settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command continues where it stopped") from None


def _events(out: Path) -> Path:
    return out.with_name(out.name + ".tensorboard")


def _show_greedy(spec: GreedySpec, out: Path, settings: Settings) -> None:
    with bars(Console()) as progress:
        watchers = [Bar(progress, "learning"), *([Board(_events(out))] if settings.tensorboard else [])]
        schedule, record = learn_greedy(spec, out, settings, watchers=watchers)
    print(schedule.describe())
    print(f"LR           {_in_words(record.trace['lr'])}")
    print(f"\nschedule: {out}")


def _show_horizon(spec: HorizonSpec, out: Path, settings: Settings) -> None:
    with bars(Console()) as progress, _board(_events(out) if settings.tensorboard else None) as events:
        bar = MetaTrainingBar(progress, "learning", events)
        schedule, record = learn_horizon(spec, out, settings, on_generation=bar)
    print(schedule.describe())
    print(f"\nschedule: {out}\nrecord:   {record}")


@contextmanager
def _board(folder: Path | None) -> Iterator[MetaTrainingBoard | None]:
    board = MetaTrainingBoard(folder) if folder else None
    try:
        yield board
    finally:
        if board is not None:
            board.close()


class MetaTrainingBar:
    """A bar counted in generations, with one line above it for every comparison."""

    def __init__(self, progress: Progress, title: str, board: MetaTrainingBoard | None = None) -> None:
        self.progress, self.title, self.board = progress, title, board
        self.task: TaskID | None = None
        self.shown = 0

    def __call__(self, trainer: HorizonTrainer) -> None:
        """Update it after a generation."""
        line = trainer.history[-1]
        if self.task is None:
            self.task = self.progress.add_task(self.title, total=trainer.evolution.generations, now="")
            self.shown = before_this_process(trainer)
        for found in trainer.comparisons[self.shown :]:
            self.progress.console.print(comparison_line(found), markup=False, highlight=False, soft_wrap=True)
        self.shown = len(trainer.comparisons)
        self.progress.update(
            self.task, completed=line.number, now=f"fitness {line.fitness:.3f} horizon {line.total_steps}"
        )
        if self.board is not None:
            self.board(trainer)


def comparison_line(found: Comparison) -> str:
    """A comparison in one line. The LRs it is compared with were chosen on the same tasks."""
    gaps = ", ".join(f"{kind} {100 * found.gap(kind):+.1f} %" for kind in found.tuned)
    return (
        f"generation {found.number:4d}  gap to the best LR of {gaps}; to the oracle of each task "
        f"{100 * found.gap(oracle=True):+.1f} %  LR {_in_words(found.lrs)}"
    )


def _in_words(lrs: list[float]) -> str:
    return f"{lrs[0]:.3g} at the start, {lrs[len(lrs) // 2]:.3g} halfway, {lrs[-1]:.3g} at the end"
