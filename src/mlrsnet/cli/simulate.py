"""`mlrsnet simulate`."""

import argparse
import os
import re
import sys

from mlrsnet.cli.parser import Parser
from mlrsnet.cli.schedules import network
from mlrsnet.files.untrusted import read_text, reason
from mlrsnet.ranges import Fixed


def add(simulate: Parser) -> None:
    """Add its options."""
    simulate.add_argument("schedule", help="a name, the path of a .safetensors file, or hf://owner/name")
    simulate.add_argument("losses", help="numbers separated by commas, a text file of numbers, or - for standard input")
    simulate.add_argument(
        "--gamma",
        metavar="X",
        type=float,
        help="range of the LR (default: the schedule's own if it is fixed, else 1)",
    )
    simulate.add_argument(
        "--num-classes", metavar="N", type=int, help="for schedules that divide the loss by log(classes)"
    )
    simulate.add_argument(
        "--total-steps",
        metavar="N",
        type=int,
        help="steps of the whole training, if the losses are only its beginning (default: as many as losses)",
    )
    simulate.set_defaults(run=_simulate)


def _simulate(arguments: argparse.Namespace) -> None:
    losses = _read_losses(arguments.losses)
    schedule = network(arguments.schedule)
    own = schedule.card.gamma.value if isinstance(schedule.card.gamma, Fixed) else 1.0
    gamma = own if arguments.gamma is None else arguments.gamma
    lrs = schedule.simulate(losses, gamma, num_classes=arguments.num_classes, total_steps=arguments.total_steps)
    print("step,loss,lr")
    for step, (loss, lr) in enumerate(zip(losses, lrs, strict=True)):
        print(f"{step},{loss:g},{lr:.6g}")


def _read_losses(words: str) -> list[float]:
    try:
        return _numbers(sys.stdin.read() if words == "-" else words)
    except ValueError:
        if words == "-" or not os.path.isfile(words):
            raise ValueError(
                f"losses must be numbers separated by commas, or a file of them, got {words[:80]!r}"
            ) from None
    try:
        return _numbers(read_text(words))
    except ValueError as error:
        raise ValueError(
            f"losses must be numbers separated by spaces, commas or lines; {words} has others ({reason(error)})"
        ) from None


def _numbers(text: str) -> list[float]:
    return [float(word) for word in re.split(r"[\s,]+", text.strip())]
