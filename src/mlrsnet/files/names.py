"""Schedules by name: those shipped with the package, and the user's own."""

import os
from pathlib import Path

from mlrsnet.default import NAME
from mlrsnet.files.storage import ScheduleError

PREFIX = "hf://"
"""Of an address on the Hugging Face Hub."""

SUFFIX = ".safetensors"
SHIPPED = Path(__file__).parents[1] / "pretrained"


def user_folder() -> Path:
    """Where `mlrsnet schedules import` keeps schedules: `$MLRSNET_HOME`, else `~/.local/share/mlrsnet`."""
    return Path(os.environ.get("MLRSNET_HOME") or Path.home() / ".local" / "share" / "mlrsnet")


def available() -> dict[str, Path]:
    """Every known name and its file. A user's file cannot override a shipped schedule."""
    return {
        file.name.removesuffix(SUFFIX): file
        for folder in (user_folder(), SHIPPED)
        for file in sorted(folder.glob(f"*{SUFFIX}"))
    }


def list_schedules() -> list[str]:
    """The names that `LearnedLR` and `Schedule.load` accept: shipped schedules and your own.

    >>> "universal" in list_schedules()
    True
    """
    return sorted({NAME, *available()})


def find(schedule: str | os.PathLike[str]) -> Path:
    """The file of a schedule given by name, path or address on the Hub."""
    if not isinstance(schedule, str | os.PathLike):
        raise TypeError(f"schedule must be a name, the path of a {SUFFIX} file or a Schedule, got {schedule!r}")
    text, known = os.fspath(schedule), available()
    if text.startswith(PREFIX):
        from mlrsnet.files import hub  # most programs never ask it

        return hub.fetch(text)
    if text in known:
        return known[text]
    if text.endswith(SUFFIX) or os.sep in text or Path(text).is_file():
        return Path(text)
    names = ", ".join(list_schedules())
    raise ScheduleError(
        f"there is no schedule named {text!r}; known: {names}. Pass one of these, the path of a {SUFFIX} file, hf://owner/name "
        "or a Schedule; `mlrsnet schedules import` adds the authors' checkpoints"
    )
