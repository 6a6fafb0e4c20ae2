"""Options that several commands share."""

import argparse
import io
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Any

from mlrsnet_lab.executors import Executor
from mlrsnet_lab.processes import joined
from mlrsnet_lab.settings import Settings

DATASET = "data: a name such as cifar10, an .npz file or a folder of pictures"


def add_out(command: argparse.ArgumentParser, default: Path | None, what: str) -> None:
    """`--out FOLDER`."""
    command.add_argument("--out", metavar="FOLDER", type=Path, default=default, help=what)


def add_device(command: argparse.ArgumentParser) -> None:
    """`--device NAME`."""
    command.add_argument(
        "--device", metavar="NAME", default="auto", help="cpu, cuda or cuda:N (default: a GPU if there is one)"
    )


def add_data(command: argparse.ArgumentParser) -> None:
    """`--data FOLDER`."""
    command.add_argument(
        "--data",
        dest="root",
        metavar="FOLDER",
        type=Path,
        help="where datasets are (default: $MLRSNET_DATA or ~/.cache/mlrsnet/data)",
    )


def add_executor(command: argparse.ArgumentParser, what: str) -> Any:
    """`--executor NAME` and what belongs to it; `what` is made at once. Returns the group of options."""
    group = command.add_argument_group("where the work is done")
    group.add_argument(
        "--executor", metavar="NAME", default=Executor.name, help="local or ray, a cluster (default: local)"
    )
    group.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help=f"{what} at once (default: one per GPU here, or one without a GPU; on Ray what there is room for)",
    )
    group.add_argument(
        "--retries",
        metavar="N",
        type=int,
        default=Executor.retries,
        help="tries again when a process dies (default: %(default)s)",
    )
    group.add_argument(
        "--address", metavar="ADDRESS", help="of the Ray cluster, such as auto (default: start one on this machine)"
    )
    group.add_argument("--cpus", metavar="X", type=float, help="cores for each on Ray (default: 1)")
    group.add_argument(
        "--gpus", metavar="X", type=float, help="GPUs for each on Ray, or a share (default: 1 if there are any)"
    )
    return group


def settings(arguments: argparse.Namespace) -> Settings:
    """What the options of this module were given, as far as the command has them."""
    given = vars(arguments)
    if "executor" in given:
        given = given | {"name": given["executor"]}
        given["executor"] = Executor(**{item.name: given[item.name] for item in fields(Executor)})
    return Settings(**{item.name: given[item.name] for item in fields(Settings) if item.name in given})


def add_tensorboard(command: argparse.ArgumentParser) -> None:
    """`--tensorboard`."""
    command.add_argument("--tensorboard", action="store_true", help="also write event files, beside each record")


def add_field(command: Any, kind: type, name: str, what: str, unset: str | None = None) -> None:
    """An option for a field of a dataclass: its type and default are the field's; `unset` describes a default of None.

    The option itself is None unless given, so that a file or a preset can be told from it.
    """
    default = getattr(kind, name)
    value_type: type = float if default is None else type(default)
    metavar = {int: "N", float: "X"}.get(value_type, "NAME")
    text = f"{what} (default: {unset or default})"
    command.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, type=value_type, help=text)


def given(arguments: argparse.Namespace, names: Any) -> dict[str, Any]:
    """The options among `names` that the user gave."""
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}


@contextmanager
def together(device: str) -> Iterator[None]:
    """Inside, the processes of `torchrun -m mlrsnet ...` train together. Only the first one prints and warns."""
    with joined(device) as processes, ExitStack() as stack:
        if not processes.is_first:
            stack.enter_context(redirect_stdout(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        yield
