"""The lab on a terminal: progress bars, tables, and where the results are."""

from mlrsnet.lab.screen.demo import show_demo
from mlrsnet.lab.screen.horizon import show_horizon
from mlrsnet.lab.screen.reproduce import show_recipes, show_report, show_reproduce
from mlrsnet.lab.screen.runs import pack_runs, resume_runs, show_run, show_runs, unpack_runs
from mlrsnet.lab.screen.train import make_spec, show_metatrain, show_train

__all__ = [
    "make_spec",
    "pack_runs",
    "resume_runs",
    "show_demo",
    "show_horizon",
    "show_metatrain",
    "show_recipes",
    "show_report",
    "show_reproduce",
    "show_run",
    "show_runs",
    "show_train",
    "unpack_runs",
]
