"""`mlrsnet runs`."""

import argparse
from pathlib import Path

from mlrsnet.cli.parser import Parser, add_command
from mlrsnet_lab.commands.options import add_data, add_device, add_tensorboard, screen, settings


def add(runs: Parser) -> None:
    """Add its actions."""
    actions = runs.add_subparsers(title="actions", required=True, metavar="ACTION")
    found = add_command(
        actions, "list", "every run below a folder", "With test accuracy (%) or perplexity of the last and best epoch."
    )
    found.add_argument("folder", nargs="?", type=Path, default=Path("."), help="default: the current one")
    found.set_defaults(run=_list)
    show = add_command(actions, "show", "one run: what was trained, its result, its last epochs")
    show.add_argument("folder", type=Path, help="the run's, as `mlrsnet runs list` shows it")
    show.set_defaults(run=_show)
    resume = add_command(actions, "resume", "continue an unfinished run, or all below a folder")
    resume.add_argument("folder", type=Path, help="the run's, or one above several")
    add_device(resume)
    add_data(resume)
    add_tensorboard(resume)
    resume.set_defaults(run=_resume)
    pack = add_command(
        actions, "pack", "ended runs as one file per recipe", "list, show and report read packs as they read folders."
    )
    pack.add_argument("folder", type=Path, help="runs are found at all depths below it")
    pack.set_defaults(run=_pack)
    unpack = add_command(actions, "unpack", "the reverse of pack: a folder for each run")
    unpack.add_argument("folder", type=Path, help="packs are found at all depths below it")
    unpack.set_defaults(run=_unpack)


def _list(arguments: argparse.Namespace) -> None:
    screen("runs").show_runs(arguments.folder)


def _show(arguments: argparse.Namespace) -> None:
    screen("runs").show_run(arguments.folder)


def _resume(arguments: argparse.Namespace) -> None:
    screen("train").show_resume(arguments.folder, settings(arguments))


def _pack(arguments: argparse.Namespace) -> None:
    screen("runs").pack_runs(arguments.folder)


def _unpack(arguments: argparse.Namespace) -> None:
    screen("runs").unpack_runs(arguments.folder)
