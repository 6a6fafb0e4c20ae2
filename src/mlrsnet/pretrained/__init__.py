"""The schedules that come with the package, one safetensors file each; `mlrsnet.list_schedules()` names them."""

import os

from mlrsnet._deprecated import renamed
from mlrsnet._files import names
from mlrsnet.schedule import Schedule


def load_any(schedule: str | os.PathLike[str] | Schedule) -> Schedule:
    """What `mlrsnet.load` did: a `Schedule` is returned as it is."""
    return schedule if isinstance(schedule, Schedule) else Schedule.load(schedule)


__getattr__ = renamed(
    __name__,
    {
        "load": ("mlrsnet.Schedule.load", load_any),
        "available": ("mlrsnet.list_schedules, which returns names only", names.available),
    },
)
