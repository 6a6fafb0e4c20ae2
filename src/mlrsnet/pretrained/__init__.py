"""Schedules by name: shipped with the package, kept in a user's own folder, or shared on the Hugging Face Hub."""

import os
from pathlib import Path

from mlrsnet._files import hub
from mlrsnet._files.storage import ScheduleError
from mlrsnet.schedule import Schedule

SUFFIX = ".safetensors"
SHIPPED = Path(__file__).parent


def user_folder() -> Path:
    """Where `mlrsnet schedules import` keeps schedules: `$MLRSNET_HOME`, else `~/.local/share/mlrsnet`."""
    return Path(os.environ.get("MLRSNET_HOME") or Path.home() / ".local" / "share" / "mlrsnet")


def available() -> dict[str, Path]:
    """Every known name and its file; a shipped name cannot be replaced by a user's."""
    return {
        file.name.removesuffix(SUFFIX): file
        for folder in (user_folder(), SHIPPED)
        for file in sorted(folder.glob(f"*{SUFFIX}"))
    }


def load(name: "str | os.PathLike[str] | Schedule") -> Schedule:
    """A schedule by name, path or address on the Hub (`hf://owner/name`); a `Schedule` is returned as it is.

    >>> load("no-such-schedule")
    Traceback (most recent call last):
    mlrsnet._files.storage.ScheduleError: there is no schedule named 'no-such-schedule'; ...
    """
    if isinstance(name, Schedule):
        return name
    if not isinstance(name, str | os.PathLike):
        raise TypeError(f"schedule must be a name, the path of a {SUFFIX} file or a Schedule, got {name!r}")
    text = os.fspath(name)
    if text.startswith(hub.PREFIX):
        return Schedule.load(hub.fetch(text))
    known = available()
    if text in known:
        return Schedule.load(known[text])
    if text.endswith(SUFFIX) or os.sep in text or Path(text).is_file():
        return Schedule.load(text)
    names = ", ".join(sorted(known)) or "none yet"
    raise ScheduleError(
        f"there is no schedule named {text!r}; known: {names}. Pass one of these, the path of a {SUFFIX} file, hf://owner/name "
        "or a Schedule; `mlrsnet schedules import` adds the authors' checkpoints"
    )
