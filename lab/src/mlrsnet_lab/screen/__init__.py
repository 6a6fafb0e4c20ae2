"""The lab on a terminal: progress bars, tables, and where the results are. Nothing is decided here."""

from mlrsnet_lab.screen.demo import show_demo
from mlrsnet_lab.screen.meta_training import show_metatrain
from mlrsnet_lab.screen.reproduce import show_recipes, show_report, show_reproduce
from mlrsnet_lab.screen.runs import pack_runs, show_run, show_runs, unpack_runs
from mlrsnet_lab.screen.table import show_fill, show_laws
from mlrsnet_lab.screen.train import show_resume, show_train

__all__ = [
    "pack_runs",
    "show_demo",
    "show_fill",
    "show_laws",
    "show_metatrain",
    "show_recipes",
    "show_report",
    "show_reproduce",
    "show_resume",
    "show_run",
    "show_runs",
    "show_train",
    "unpack_runs",
]
