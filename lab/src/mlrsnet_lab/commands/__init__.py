"""The commands that the lab adds to `mlrsnet`: one per file, with its options, loaded when it is called."""

from mlrsnet.cli.parser import Command

COMMANDS = (
    Command(
        "demo",
        "mlrsnet_lab.commands.demo",
        "learn a schedule on some digits, transfer it to others, compare",
    ),
    Command(
        "reproduce",
        "mlrsnet_lab.commands.reproduce",
        "train a table of the paper and report on it",
        "The same command continues where it was stopped; finished runs are not repeated.",
    ),
    Command(
        "train",
        "mlrsnet_lab.commands.train",
        "one training, from a file or from options",
        "Options override the file. An unknown name lists the known ones.",
    ),
    Command(
        "metatrain",
        "mlrsnet_lab.commands.metatrain",
        "learn a schedule: while a model trains, or from many small trainings",
        "The same command continues where it was stopped.",
    ),
    Command("runs", "mlrsnet_lab.commands.runs", "list, show, resume and pack runs"),
    Command(
        "report",
        "mlrsnet_lab.commands.report",
        "make a page of tables and pictures from runs",
        "It trains nothing.",
    ),
)
"""The entry point `lab` of the group `mlrsnet.commands`."""
