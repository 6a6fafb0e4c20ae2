"""Every reader of bytes from outside, as a function of these bytes, and what counts as a good end.

A reader either takes a file, or refuses it with a `ValueError` or an `OSError` whose message is one line that names the file. All
else is a crash: another exception, a message of many lines, memory that ran out, a file outside the folder.

Digests and checksums would stop most changed bytes at the door. So some readers take the part behind it, which is then wrapped
into a file whose digest is right: the description of a schedule, the pickle of a checkpoint, one array of an .npz file.
"""

import contextlib
import io
import json
import os
import re
import shutil
import struct
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from mlrsnet import LearnedLR, Schedule
from mlrsnet.cli.simulate import _read_losses
from mlrsnet.files import hub, official, storage
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import checkpoint, meta_training, records, starts, universal
from mlrsnet_lab.commands.runs import show_run, show_runs
from mlrsnet_lab.datasets import (
    arrays,
    corrupted,
    image_folder,
    packages,
    snippets,
    tables,
    text,
    treebank,
    weather,
)
from mlrsnet_lab.datasets.options import FractionOptions
from mlrsnet_lab.meta_specs import HorizonSpec
from mlrsnet_lab.overrides import make_spec
from mlrsnet_lab.report import markdown, read_report
from mlrsnet_lab.several import read_below
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

CPU = torch.device("cpu")
LONGEST_MESSAGE = 1500
OUT_OF_MEMORY = re.compile(r"MemoryError|[Uu]nable to allocate|can't allocate|not enough memory|Cannot allocate")
TINY = {"task_options": {"classes": [0, 1]}, "model": "mlp", "model_options": {"width": 2, "depth": 1}, "epochs": 1}
SPLIT = b"\n\x00\n"
"""Between the files of a reader that takes several."""


@dataclass(frozen=True)
class Reader:
    """`read` puts the bytes into an empty folder and reads them; `seeds` are good ones. `names_file`: whether errors must do so."""

    read: Callable[[Path, bytes], object]
    seeds: Callable[[], list[bytes]]
    names_file: bool = True


def verdict(reader: Reader, content: bytes, sandbox: Path) -> tuple[bool, str]:
    """Whether it ended well, and how it ended. The sandbox is empty before and after."""
    folder = sandbox / "folder"
    folder.mkdir()
    try:
        with warnings.catch_warnings(action="ignore"):
            reader.read(folder, content)
        good, told = True, "accepted"
    except (ValueError, OSError) as error:
        told = f"{type(error).__name__}: {error}".replace(str(folder), "FOLDER")
        one_line = str(error).isprintable() and 0 < len(str(error)) <= LONGEST_MESSAGE
        good = one_line and not OUT_OF_MEMORY.search(told) and ("FOLDER" in told or not reader.names_file)
    except Exception as error:
        good, told = False, f"{type(error).__name__}: {error}"
    if os.listdir(sandbox) != ["folder"]:
        good, told = False, f"wrote {os.listdir(sandbox)}"
    for name in os.listdir(sandbox):
        shutil.rmtree(sandbox / name)
    return good, told


def file_reader(name: str, read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    """Reads one file of this name."""

    def whole(folder: Path, content: bytes) -> object:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return read(path)

    return whole


def saved(value: object, *, old: bool = False) -> bytes:
    content = io.BytesIO()
    torch.save(value, content, _use_new_zipfile_serialization=not old)
    return content.getvalue()


def behind_pickle(
    name: str, read: Callable[[Path], object], whole: Callable[[], bytes], names_file: bool = True
) -> Reader:
    """The pickle of a good checkpoint, among whose other members it is put."""

    def put(folder: Path, content: bytes) -> object:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(whole())) as before, zipfile.ZipFile(out, "w") as after:
            for member in before.namelist():
                after.writestr(member, content if member.endswith("data.pkl") else before.read(member))
        return file_reader(name, read)(folder, out.getvalue())

    return Reader(put, lambda: [pickle_of(whole())], names_file)


def pickle_of(checkpoint: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(checkpoint)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def as_npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def as_npz(compressed: bool = False, **given: np.ndarray) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **given)
    return out.getvalue()


# Schedules


@cache
def schedule_bytes() -> bytes:
    torch.manual_seed(0)
    return _bytes_of(Schedule(LSTMNet(2)))


def _bytes_of(schedule: Schedule) -> bytes:
    net = {name: tensor.contiguous() for name, tensor in schedule._tensors().items()}
    description = schedule._description()
    description["card"]["versions"] = {}  # the seeds must not depend on the machine
    return _wrap(json.dumps(description).encode(), net)


def _wrap(description: bytes, tensors: dict[str, torch.Tensor]) -> bytes:
    """A schedule file with this text as its description, and the digest that belongs to it."""
    from safetensors.torch import save

    try:
        digest = storage.digest(json.loads(description), tensors)
    except (ValueError, RecursionError):
        digest = ""
    head = json.dumps({"format": storage.FORMAT, "version": storage.VERSION, "sha256": digest})
    whole = head[:-1] + ', "description": ' + description.decode("utf-8", errors="replace") + "}"
    return save(tensors, metadata={storage.KEY: whole})


@cache
def _plain_tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {name: tensor.contiguous() for name, tensor in Schedule(LSTMNet(2))._tensors().items()}


def load_schedule(path: Path) -> None:
    schedule = Schedule.load(path)
    schedule.describe()
    schedule.model_card("owner/name")
    schedule.simulate([2.0, 1.0])


def read_description(folder: Path, content: bytes) -> None:
    (folder / "s.safetensors").write_bytes(_wrap(content, _plain_tensors()))
    load_schedule(folder / "s.safetensors")


def description_seeds() -> list[bytes]:
    (length,) = struct.unpack("<Q", schedule_bytes()[:8])
    metadata = json.loads(schedule_bytes()[8 : 8 + length])["__metadata__"]
    description = json.loads(metadata[storage.KEY])["description"]
    full = {
        **description,
        "card": {**description["card"], "loss_range": [0.1, 2.0], "total_steps": 10, "results": {"a": 1}},
    }
    measured = {"policy": "measured", "statistic": "loss", "value": 1.0, "horizon_power": -0.5, "caution": 0.5}
    other = {**description, "card": {**description["card"], "gamma": measured}}
    return [json.dumps(one).encode() for one in (description, full, other)]


@cache
def official_seeds() -> list[bytes]:
    torch.manual_seed(0)
    net = LSTMNet(2, layout="official-test").state_dict()
    tensors = {theirs: net[ours].clone() for theirs, ours in official.KEYS.items()}
    return [saved(tensors), saved(tensors, old=True)]


# Checkpoints


@cache
def stepper() -> Stepper:
    return Stepper(RunSpec(**TINY), CPU)


def run_record() -> records.Record:
    data = {"format": 1, "status": "running", "spec": stepper().spec.to_dict()}
    return records.Record(data, [{"epoch": 1}], {"loss": [1.0], "lr": [0.1]})


def read_checkpoint(path: Path) -> None:
    found, _ = checkpoint.load(path.parent, stepper(), run_record())
    records.write(records.Record(found.data, found.epochs, found.trace, path.parent))


@cache
def checkpoint_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder), stepper(), run_record(), (1.0, 2.0))
        return (Path(folder) / records.CHECKPOINT).read_bytes()


@cache
def trainer() -> tuple[HorizonSpec, object]:
    spec = HorizonSpec(task_options={"classes": [0, 1]}, generations=3, tasks=2, members=2, hidden=4, held_out=2)
    return spec, meta_training.build(spec, CPU)


def read_meta_training(path: Path) -> None:
    meta_training._Run(*trainer(), path.parent, "CPU")


@cache
def meta_training_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        meta_training._Run(*trainer(), Path(folder), "CPU").save()
        return (Path(folder) / records.CHECKPOINT).read_bytes()


def read_start(path: Path) -> None:
    spec = RunSpec(**TINY)
    place = path.parent / starts.FOLDER / f"{starts._name(spec, CPU)}.pt"
    place.parent.mkdir()
    path.rename(place)
    start = starts.find(spec, CPU, path.parent, lambda: {})
    start.put_into(torch.nn.Linear(2, 2))


@cache
def start_bytes() -> bytes:
    return saved({"weight": torch.ones(2, 2), "bias": torch.ones(2)})


def read_state(folder: Path, content: bytes) -> None:
    """The state of a training, with these values in place of its own; lists of numbers become tensors."""
    try:
        given = json.loads(content)
        values = {name: _tensor(value) if isinstance(value, list) else value for name, value in dict(given).items()}
    except (ValueError, TypeError, RecursionError):
        return
    scheduler = _scheduler()
    scheduler.load_state_dict({**state_of_training(), **values})
    scheduler.step(1.0)
    scheduler.optimizer.step()


def _tensor(value: list[object]) -> object:
    try:
        return torch.tensor(value)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return value


def _scheduler() -> LearnedLR:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.ones(2, 2)
    return LearnedLR(torch.optim.SGD([weight], 0.1), "universal", total_steps=10)


@cache
def state_of_training() -> dict[str, object]:
    scheduler = _scheduler()
    for loss in (2.0, 1.5):
        scheduler.step(loss)
        scheduler.optimizer.step()
    return scheduler.state_dict()


# Records


def read_record(folder: Path, content: bytes) -> None:
    run = folder / "run"
    run.mkdir()
    for name, part in zip((records.RECORD, records.EPOCHS, records.TRACE), content.split(SPLIT), strict=False):
        (run / name).write_bytes(part)
    _read_everything(run)


def read_pack(path: Path) -> None:
    _read_everything(path.parent)
    records.unpack(path)
    _read_everything(path.parent)


def _read_everything(folder: Path) -> None:
    runs = read_below(folder)
    with contextlib.redirect_stdout(io.StringIO()) as told:
        show_runs(folder)
        for record in runs.found:
            show_run(record.folder)
    assert told.getvalue().replace("\n", "").isprintable()
    markdown(read_report(folder))
    if runs.unreadable:
        raise ValueError(runs.unreadable[0])
    for record in runs.found:
        try:
            RunSpec.from_dict(record.spec).describe()
        except ValueError:
            continue  # `mlrsnet runs resume` tells it, and goes on


def record_seeds() -> list[bytes]:
    spec = RunSpec(**TINY).to_dict()
    result = {"last": 90.0, "best": 91.0, "epoch": 1, "train_loss": 0.3, "test_loss": 0.4}
    data = {
        "format": 1, "status": "finished", "spec": spec,
        "labels": {"recipe": "table1", "scale": "smoke", "row": "a", "column": "b"},
        "metric": {"name": "accuracy", "unit": "%", "better": "higher"}, "result": result, "timing": {"seconds": 1.0},
        "rays": {"distance": [0, 1], "train": [[1.0, 2.0]], "test": [[1.0, 2.0]]}, "versions": {"torch": "2"}, "sessions": [],
    }  # fmt: skip
    epochs = b'{"epoch": 1, "train_loss": 0.5, "test_metric": 90, "lr": 0.1, "seconds": 1.5}\n'
    trace = b'{"step": [0, 1], "loss": [1.0, null], "lr": [0.1, 0.2]}'
    failed = json.dumps({"format": 1, "status": "failed", "spec": {}, "error": "RuntimeError: no"}).encode()
    return [SPLIT.join((json.dumps(data).encode(), epochs, trace)), failed]


def pack_seeds() -> list[bytes]:
    data, epochs, trace = (json.loads(part) for part in record_seeds()[0].split(SPLIT))
    lines = [{"folder": place, "record": data, "epochs": [epochs], "trace": trace} for place in ("a/0", "b")]
    return ["".join(json.dumps(line) + "\n" for line in lines).encode(), b'{"folder": "../up", "record": {}}\n']


def read_plans(folder: Path, content: bytes) -> None:
    """A recipe.json and a study.json, beside a good run."""
    for name, part in zip((records.RECIPE, records.STUDY), content.split(SPLIT), strict=False):
        (folder / name).write_bytes(part)
    read_record(folder, record_seeds()[0])
    report = read_report(folder)
    markdown(report)


def plan_seeds() -> list[bytes]:
    cells = [{"row": "a", "column": "b", "paper": [90.0, 0.1], "missing": ""}]
    averages = [{"title": "mean", "columns": ["b"], "paper": {"a": [1.0, 2.0]}, "paper_best": {"a": 1.0}}]
    recipe = {"name": "table1", "scale": "smoke", "title": "t", "claim": "c", "notes": ["n"], "rows": ["a"], "columns": ["b"],
              "seeds": [0], "cells": cells, "averages": averages, "paper_setting": "s"}  # fmt: skip
    study = {
        "title": "t",
        "scale": "smoke",
        "claim": "c",
        "notes": ["n"],
        "name": "theory",
        "tables": [{"rows": [[1, 2.0]]}],
    }
    return [SPLIT.join((json.dumps(recipe).encode(), json.dumps(study).encode()))]


def spec_seeds() -> list[bytes]:
    spec = RunSpec(**TINY)
    start = RunSpec(**TINY, start=spec.to_dict())
    learned = {"schedule": "learned", "schedule_options": {"schedule": "universal", "scale": 0.5}}
    return [spec.to_json().encode(), start.to_json().encode(), json.dumps({"spec": {**TINY, **learned}}).encode()]


# Data


def pictures() -> dict[str, np.ndarray]:
    images = np.arange(4 * 2 * 2, dtype=np.uint8).reshape(4, 2, 2)
    labels = np.array([0, 1, 0, 1])
    return {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels.astype(np.float32)}


def read_one_array(folder: Path, content: bytes) -> None:
    """The bytes are x_train; the others are good."""
    members = {f"{name}.npy": as_npy(array) for name, array in pictures().items()}
    (folder / "d.npz").write_bytes(zipped({**members, "x_train.npy": content}))
    arrays.read(folder / "d.npz", "d")


def read_npy(folder: Path, content: bytes) -> None:
    pixels, _, labels = content.partition(SPLIT)
    (folder / "p.npy").write_bytes(pixels)
    (folder / "labels.npy").write_bytes(labels)
    corrupted._read(folder / "p.npy", folder / "labels.npy", 2, corrupted.CorruptedOptions())


def npy_seeds() -> list[bytes]:
    pixels, labels = np.zeros((5, 32, 32, 3), np.uint8), np.zeros(5, np.int64)
    return [as_npy(pixels) + SPLIT + as_npy(labels)]


def read_picture(path: Path) -> None:
    for seed in (None, 0):
        found = image_folder._Reader(((str(path), 0),), 8, seed)[0]
        if isinstance(found, str):
            raise ValueError(found)


def picture_seeds() -> list[bytes]:
    picture, seeds = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)), []
    for kind in image_folder.FORMATS:
        out = io.BytesIO()
        picture.save(out, kind)
        seeds.append(out.getvalue())
    return seeds


def read_texts(folder: Path, content: bytes) -> None:
    place = folder / "ptb"
    place.mkdir()
    for name, part in zip(text.FILES.values(), (content.split(SPLIT) + [b""] * 3)[:3], strict=True):
        (place / name).write_bytes(part)
    text.load_words("ptb", folder, FractionOptions())
    text.load_characters("ptb-chars", folder, FractionOptions())


def read_packaged(source: packages.Packaged, read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    """A file that a package of PyPI would bring, put there by hand."""
    name = f"packages/{source.package}-{source.version}/{Path(source.member).name}"
    return file_reader(name, lambda path: read(path.parents[2]))


def read_address(folder: Path, content: bytes) -> None:
    address = content.decode("utf-8", errors="replace")
    hub._parts(address)
    hub._check_name(address)


def packaged_seed(source: packages.Packaged) -> list[bytes]:
    if source is tables.DIAMONDS:
        return [b"carat,cut,color,clarity,depth,table,price,x,y,z\n0.2,Ideal,E,SI2,61,55,326,3.9,3.9,2.4\n"]
    flights = b"year,month,day,sched_dep_time,dep_delay,sched_arr_time,arr_delay,carrier,origin,air_time,distance\n"
    if source is tables.FLIGHTS:
        return [zipped({"flights.csv": flights + b"2013,1,1,515,2,819,11,UA,EWR,227,1400\n"})]
    if source is weather.WEATHER:
        row = "JFK,{day},2013-01-{day:02d}T{hour:02d}:00:00Z," + ",".join("1" for _ in weather.READ)
        rows = [
            row.format(day=day, hour=hour)
            for day in (*range(1, 4), *range(21, 24), *range(26, 29))
            for hour in range(24)
        ]
        return ["\n".join(["origin,day,time_hour," + ",".join(weather.READ), *rows]).encode()]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for kind in snippets.KINDS:
            member = tarfile.TarInfo(f"hutto_ICWSM_2014/{kind}_GroundTruth.txt")
            content = b"1\t0.5\tIt is good.\n2\t-1\tBad\n"
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return [out.getvalue()]


READERS = {
    "schedule": Reader(file_reader("s.safetensors", load_schedule), lambda: [schedule_bytes()]),
    "schedule description": Reader(read_description, description_seeds),
    "authors' checkpoint": Reader(file_reader("m.pth", Schedule.from_official), official_seeds),
    "authors' pickle": behind_pickle("m.pth", Schedule.from_official, lambda: official_seeds()[0]),
    "checkpoint": Reader(file_reader(records.CHECKPOINT, read_checkpoint), lambda: [checkpoint_bytes()]),
    "checkpoint pickle": behind_pickle(records.CHECKPOINT, read_checkpoint, checkpoint_bytes),
    "meta-training pickle": behind_pickle(records.CHECKPOINT, read_meta_training, meta_training_bytes),
    "start pickle": behind_pickle("start.pt", read_start, start_bytes, names_file=False),
    "state of LearnedLR": Reader(read_state, lambda: [b'{"steps": 2, "lr": 0.1, "history": [0.1, 0.2]}', b"{}"], names_file=False),
    "record": Reader(read_record, record_seeds),
    "pack": Reader(file_reader(records.PACK, read_pack), pack_seeds),
    "plans and studies": Reader(read_plans, plan_seeds),
    "spec": Reader(file_reader("spec.json", make_spec), spec_seeds),
    "arrays": Reader(
        file_reader("d.npz", lambda path: arrays.read(path, "d")),
        lambda: [as_npz(**pictures()), as_npz(True, **pictures())],
    ),
    "universal arrays": Reader(
        file_reader("u.npz", universal._read),
        lambda: [as_npz(True, inputs=np.zeros((2, 3), "u1"), targets=np.zeros(2), classes=np.array(2), mirrored=np.array(0))],
    ),
    "one array": Reader(read_one_array, lambda: [as_npy(pictures()["x_train"]), as_npy(np.full((4, 2, 2), 9, "f4"))]),
    "array files": Reader(read_npy, npy_seeds),
    "picture": Reader(file_reader("p.png", read_picture), picture_seeds),
    "texts": Reader(read_texts, lambda: [SPLIT.join(("a b <unk>\nb \u00e9\n".encode(), b"a b\n", b"b\na"))]),
    "losses": Reader(
        file_reader("losses.txt", lambda path: _read_losses(str(path))), lambda: [b"2.3, 1.0\n0.5 1e-3"]
    ),
    "diamonds": Reader(
        read_packaged(tables.DIAMONDS, lambda root: packages.parsed(tables.DIAMONDS, root, tables._diamonds)),
        lambda: packaged_seed(tables.DIAMONDS),
    ),
    "flights": Reader(
        read_packaged(tables.FLIGHTS, lambda root: packages.arrays(tables.FLIGHTS, root, "flights", tables._flights)),
        lambda: packaged_seed(tables.FLIGHTS),
    ),
    "weather": Reader(
        read_packaged(weather.WEATHER, lambda root: packages.parsed(weather.WEATHER, root, weather._read)),
        lambda: packaged_seed(weather.WEATHER),
    ),
    "snippets": Reader(
        read_packaged(snippets.SNIPPETS, lambda root: packages.parsed(snippets.SNIPPETS, root, snippets._read)),
        lambda: packaged_seed(snippets.SNIPPETS),
    ),
    "treebank": Reader(
        read_packaged(treebank.TREEBANK, lambda root: packages.parsed(treebank.TREEBANK, root, treebank.read)),
        lambda: [b'penn = {}\r\npenn["train"] = """ a b \r\n"""\r\nv = """ b \r\n"""\r\nt = """ a \r\n"""\r\n'],
    ),
    "address": Reader(read_address, lambda: [b"hf://owner/name@main", b"owner/name"], names_file=False),
}  # fmt: skip
