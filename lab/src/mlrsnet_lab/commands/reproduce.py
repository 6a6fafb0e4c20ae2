"""`mlrsnet reproduce`."""

import argparse
from pathlib import Path

from mlrsnet.cli.parser import Parser
from mlrsnet_lab.commands.options import add_data, add_device, add_executor, add_out, add_tensorboard, screen, settings


def add(reproduce: Parser) -> None:
    """Add its options."""
    reproduce.add_argument("recipe", nargs="?", help="what to reproduce, such as table1, or all")
    reproduce.add_argument("--list", action="store_true", help="list what can be reproduced, and train nothing")
    reproduce.add_argument(
        "--scale",
        metavar="SCALE",
        default="smoke",
        help="smoke (small data, minutes on a CPU), short (a GPU, fewer epochs) or paper (a GPU, "
        "the paper's own settings) (default: %(default)s)",
    )
    reproduce.add_argument(
        "--seeds", metavar="N", type=int, nargs="+", help="such as --seeds 0 1 (default: 0 1 2, three as in the paper)"
    )
    reproduce.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this row or column; may be repeated"
    )
    add_out(reproduce, None, "folder for runs and report (default: mlrsnet-RECIPE-SCALE)")
    add_device(reproduce)
    add_data(reproduce)
    add_tensorboard(reproduce)
    add_executor(reproduce, "runs").add_argument(
        "--checkpoint-seconds",
        metavar="X",
        type=float,
        default=20.0,
        help="a killed run loses about this much work (default: %(default)g)",
    )
    reproduce.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    show = screen("reproduce")
    if arguments.list:
        show.show_recipes()
        return
    if arguments.recipe is None:
        raise ValueError("reproduce needs the name of a recipe: `mlrsnet reproduce --list` shows them")
    show.show_reproduce(
        arguments.recipe,
        arguments.scale,
        arguments.out or Path(f"mlrsnet-{arguments.recipe}-{arguments.scale}"),
        settings(arguments),
        seeds=arguments.seeds,
        only=arguments.only,
    )
