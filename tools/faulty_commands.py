"""The commands that `tools.faults` kills: each as small as it can be, with a checkpoint as often as it can be."""

import argparse
import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from mlrsnet import cli
from mlrsnet_lab import datasets, records
from mlrsnet_lab.commands import metatrain, options, train
from mlrsnet_lab.settings import Settings

OUT = "learned.safetensors"


@dataclass(frozen=True)
class Command:
    """A command.

    run: run it in the current folder; returns its exit code.
    left: what it leaves in a folder that must be the same every time, as bytes.
    is_over: whether a folder has all of it, so that the same command is refused.
    """

    name: str
    run: Callable[[], int]
    left: Callable[[Path], dict[str, bytes]]
    is_over: Callable[[Path], bool] = lambda folder: False


def warm_up() -> None:
    """Import and read what all processes need, and save as often as possible. Starts no thread: the process will fork."""
    torch.set_num_threads(1)
    os.environ["MLRSNET_COMMIT"] = str(records.commit())  # read once: git would be asked by every process
    datasets.load("digits")
    for command in (metatrain, train):
        setattr(command, "settings", _settings)  # noqa: B010


def _settings(arguments: argparse.Namespace) -> Settings:
    """Those of the options, with a checkpoint as often as can be."""
    return dataclasses.replace(options.settings(arguments), checkpoint_seconds=0.0)


def _train() -> int:
    size = ["--option", "task.classes=[0,1]", "--option", "model.width=8", "--option", "model.depth=1"]
    words = ["train", "--model", "mlp", "--optimizer", "adamw", "--schedule", "universal", "--epochs", "4"]
    return cli.main([*words, "--batch-size", "4", "--device", "cpu", "--out", "run", *size])


def _greedy() -> int:
    words = ["metatrain", "--classes", "0123", "--epochs", "12", "--device", "cpu"]
    return cli.main([*words, "--out", OUT])


def _horizon() -> int:
    words = ["metatrain", "--objective", "horizon", "--classes", "012", "--generations", "4", "--tasks", "1"]
    return cli.main([*words, "--members", "2", "--hidden", "4", "--held-out", "1", "--device", "cpu", "--out", OUT])


def _run_left(folder: Path) -> dict[str, bytes]:
    """The record, epochs and trace without times."""
    found = records.read(folder / "run").comparable()
    return {name: json.dumps(part).encode() for name, part in found.items()}


def _schedule_left(folder: Path) -> dict[str, bytes]:
    """The schedule's file, and the record beside it without times."""
    found = {OUT: (folder / OUT).read_bytes()}
    if (folder / f"{OUT}.json").is_file():
        record = json.loads((folder / f"{OUT}.json").read_text())
        found["record"] = json.dumps(
            {key: record[key] for key in record if key not in ("seconds", "sessions")}
        ).encode()
    return found


def _has_schedule(folder: Path) -> bool:
    return (folder / OUT).is_file() and not (folder / f"{OUT}.run").exists()


COMMANDS = {
    command.name: command
    for command in (
        Command("train", _train, _run_left),
        Command("metatrain greedy", _greedy, _schedule_left, _has_schedule),
        Command("metatrain horizon", _horizon, _schedule_left, _has_schedule),
    )
}
