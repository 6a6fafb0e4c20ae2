"""A program for torchrun: commands of the command line in order, with faults at certain steps. Its argument is a plan (JSON).

commands  lists of words
faults    attempt, command (its number), step, rank, and kind: kill, ask or stop_torchrun
refused   more commands, which must be refused
"""

import io
import json
import os
import signal
import sys
import time
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import torch

from mlrsnet import cli
from mlrsnet_lab.commands import options
from mlrsnet_lab.processes import joined
from mlrsnet_lab.stepper import Stepper


def kill():
    """No farewell."""
    os.kill(os.getpid(), signal.SIGKILL)


def ask():
    """The polite signal, which only this process hears."""
    signal.raise_signal(signal.SIGTERM)


def stop_torchrun():
    """The signal of a user, who knows torchrun only. Wait until it has passed it on, so that the training does not end before."""
    stop = signal.getsignal(signal.SIGTERM).__self__
    os.kill(os.getppid(), signal.SIGTERM)
    while not stop.asked:
        time.sleep(0.01)


def fault_at(fault):
    """Let it happen after this step of a training."""
    plain = Stepper.step

    def step(self):
        plain(self)
        if (self.step_count, self.processes.rank) == (fault["step"], fault["rank"]):
            {"kill": kill, "ask": ask, "stop_torchrun": stop_torchrun}[fault["kind"]]()

    Stepper.step = step
    return plain


def main():
    """Run the plan."""
    torch.set_num_threads(1)
    plan = json.loads(Path(sys.argv[1]).read_text())
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    usual = options.settings
    options.settings = lambda arguments: replace(usual(arguments), checkpoint_seconds=0.0)  # one after every epoch
    with joined("cpu"):
        for number, words in enumerate(plan["commands"]):
            due = [fault for fault in plan["faults"] if (fault["attempt"], fault["command"]) == (attempt, number)]
            plain = fault_at(due[0]) if due else Stepper.step
            code = cli.main(words)
            Stepper.step = plain
            if code:
                sys.exit(code)
        told = io.StringIO()  # each process on its own: their lines on one stream can be mixed
        for words in plan["refused"]:
            with redirect_stderr(told):
                code = cli.main(words)
            if code != 2:
                sys.exit(f"not refused: {words}")
        Path(sys.argv[1]).with_name(f"refused{os.environ['RANK']}.txt").write_text(told.getvalue())


if __name__ == "__main__":
    main()
