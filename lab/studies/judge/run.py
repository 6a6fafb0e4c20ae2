"""Run what is not done yet, a line each: decays first, then the best of them with more seeds, then the others."""

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lab.studies.judge.methods import DECAYS, START, TIMES
from lab.studies.judge.tasks import load
from lab.studies.judge.train import train
from mlrsnet_lab.records import commit

SEEDS = (1, 2, 3)
DIGITS = 6
"""Of errors that are compared: those that differ by rounding alone are equal."""

Record = dict[str, Any]


class Job(NamedTuple):
    """A training."""

    task: str
    method: str
    multiple: float | None
    seed: int


Done = dict[Job, Record]


def read(out: Path) -> Done:
    """The trainings of a file; none if it is not there. A line that was cut off, as by a kill, does not count."""
    lines = out.read_text().splitlines() if out.is_file() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return {Job(*(record[name] for name in Job._fields)): record for record in records}


def level(record: Record) -> tuple[float, float]:
    """What is compared: the validation error, and the loss where errors are equal. The worst if it diverged or failed."""
    found = (record.get("validation"), record.get("validation_loss"))
    return (math.inf, math.inf) if found[0] is None or found[1] is None else (round(found[0], DIGITS), found[1])


def next_multiples(found: dict[float, tuple[float, float]]) -> list[float]:
    """What has to be tried next, so that the best is not at an edge; nothing if it is inside, or at an end of the grid."""
    if missing := [times for times in START if times not in found]:
        return missing
    order = sorted(found)
    best = min(order, key=found.__getitem__)
    place = TIMES.index(best)
    if best == order[0]:
        return list(TIMES[max(0, place - 1) : place])
    return list(TIMES[place + 1 : place + 2]) if best == order[-1] else []


def wanted(done: Done, tasks: Sequence[str], methods: Sequence[str]) -> list[Job]:
    """What can be run now, the most urgent first."""
    decays, again = [], []
    for task in tasks:
        for kind in [name for name in methods if name in DECAYS]:
            found = {
                job.multiple: level(record)
                for job, record in done.items()
                if job.task == task and job.method == kind and job.seed == SEEDS[0] and job.multiple is not None
            }
            if more := next_multiples(found):
                decays += [Job(task, kind, multiple, SEEDS[0]) for multiple in more]
            else:
                best = min(sorted(found), key=found.__getitem__)
                again += [Job(task, kind, best, seed) for seed in SEEDS[1:]]
    others = [Job(task, name, None, seed) for name in methods if name not in DECAYS for task in tasks for seed in SEEDS]
    return [job for job in (*decays, *again, *others) if job not in done]


def perform(job: Job, folder: Path, threads: int) -> Record:
    """Its record, or what went wrong."""
    torch.set_num_threads(threads)
    try:
        return train(load(folder, job.task), job.method, job.seed, job.multiple)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def run(
    folder: Path, out: Path, tasks: Iterable[str], methods: Iterable[str], workers: int, seconds: float, threads: int
) -> None:
    """Train until all is done, or so many seconds have passed; what runs then is finished."""
    tasks, methods, done, end = list(tasks), list(methods), read(out), time.monotonic() + seconds
    about = {"device": device(), "threads": threads, "torch": torch.__version__, "commit": commit()}
    running: dict[Future[Record], Job] = {}
    out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, out.open("a") as file:
        file.write("" if _is_whole(out) else "\n")
        while True:
            ready = [job for job in wanted(done, tasks, methods) if job not in running.values()]
            for job in ready[: workers - len(running) if time.monotonic() < end else 0]:
                running[pool.submit(perform, job, folder, threads)] = job
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                done[job] = {**job._asdict(), **future.result(), **about}
                file.write(json.dumps(done[job]) + "\n")
                file.flush()


def _is_whole(out: Path) -> bool:
    return out.read_bytes()[-1:] in (b"", b"\n")


def device() -> str:
    """The processor by its name, and how many cores there are."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.is_file() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")
    return f"{name}, {os.cpu_count()} cores"
