"""What executors cost and save, measured in one run: runs and generations over one and two workers.

Everything is on CPUs, one thread per worker, and each time is the smallest of several rounds in which all variants take turns.
Workers are warm: what it takes to start one is measured by itself. Other programs may share the machine, and then two processes get
twice the share of one: the record holds the load before and after, and beside seconds the CPU seconds of all processes.

    python benchmarks/executors.py [--rounds 3] [--out results/executors/cpu.json]
"""

import argparse
import json
import os
import pickle
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from mlrsnet.card import versions
from mlrsnet_lab import checkpoint, records, run_record
from mlrsnet_lab.campaign import make_run
from mlrsnet_lab.devices import device_name, reproducible
from mlrsnet_lab.executors import Crew, Executor, Place, Work
from mlrsnet_lab.generations import CrewHelpers, Order
from mlrsnet_lab.horizon import HorizonTrainer, evolution
from mlrsnet_lab.horizon.judging import Judged
from mlrsnet_lab.meta_building import build
from mlrsnet_lab.meta_specs import PRESETS, HorizonSpec
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

RUN = RunSpec(task="digits", model="small_cnn", epochs=10, lr=0.5)
RUNS, CALLS = 8, 300
GENERATION = HorizonSpec(generations=1000, tasks=8, members=8, hidden=16, held_out=1, together=1)
CPU = torch.device("cpu")


def nothing(place: Place) -> None:
    """The least a piece of work can do."""


def do(crew: Crew, works: list[Work]) -> list[Any]:
    left = list(reversed(works))
    return [done.value for done in crew.run(lambda: left.pop() if left else None)]


def campaign(crew: Crew) -> None:
    """Equal runs, each with another seed."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        do(
            crew,
            [
                Work(
                    str(seed), make_run, (replace(RUN, seed=seed), out / str(seed), Settings(root=out), {}), polite=True
                )
                for seed in range(RUNS)
            ],
        )


class Generations:
    """Generations of one meta-training, always the same one."""

    def __init__(self) -> None:
        self.trainer = build(GENERATION, CPU)
        self.state = self.trainer.state_dict()

    def __call__(self, crew: Crew) -> None:
        self.trainer.load_state_dict(self.state)
        self.trainer.helpers = CrewHelpers(crew, GENERATION, None)
        self.trainer.step()


def calls(crew: Crew) -> None:
    do(crew, [Work(str(number), nothing) for number in range(CALLS)])


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def cpu_seconds() -> float:
    """Of this process and all below it, Ray's own ones too."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def over_workers(rounds: int) -> dict[str, Any]:
    """Every kind of work with one and with two workers of each executor."""
    loads: dict[str, Callable[[Crew], None]] = {"campaign": campaign, "generation": Generations()}
    times: dict[str, dict[str, list[float]]] = {}
    cpu: dict[str, dict[str, list[float]]] = {}
    starts: dict[str, float] = {}
    with ExitStack() as stack:
        crews: dict[str, Crew] = {}
        for name, executor in (("processes", Executor(jobs=2)), ("ray", Executor("ray", jobs=2))):
            begin = time.perf_counter()
            crews[name] = stack.enter_context(executor.crew("cpu"))
            starts[f"{name}_cluster_s"] = time.perf_counter() - begin
            starts[f"{name}_two_workers_s"] = seconds(
                lambda name=name: do(crews[name], [Work("0", nothing), Work("1", nothing)])
            )
            for load in loads.values():
                load(crews[name])  # warm: data read, networks built
        for _ in range(rounds):
            for name, crew in crews.items():
                for size in (1, 2):
                    crew.workers.size = crew.workers.most = size
                    for what, load in (loads | {"calls": calls}).items():
                        before = cpu_seconds()
                        taken = seconds(lambda load=load, crew=crew: load(crew))
                        used, key = cpu_seconds() - before, f"{name}_{size}"
                        times.setdefault(what, {}).setdefault(key, []).append(taken)
                        cpu.setdefault(what, {}).setdefault(key, []).append(used)
                        print(what, name, size, f"{taken:.2f} s, CPU {used:.2f} s", flush=True)
        mailbox = mailbox_rates(crews["ray"].workers)
    amounts = {"campaign": RUNS, "generation": 1}
    best = {what: {name: min(found) for name, found in rows.items()} for what, rows in times.items()}
    return {
        "start": starts,
        "seconds": best,
        "all_seconds": times,
        "cpu_seconds": cpu,
        "cpu_of_two_workers_over_one": {
            what: {name: min(cpu[what][f"{name}_2"]) / min(cpu[what][f"{name}_1"]) for name in ("processes", "ray")}
            for what in amounts
        },
        "records_per_second": {
            what: {name: amounts[what] / value for name, value in best[what].items()} for what in amounts
        },
        "two_workers_over_one": {
            what: {name: best[what][f"{name}_1"] / best[what][f"{name}_2"] for name in ("processes", "ray")}
            for what in amounts
        },
        "ms_per_call": {name: 1e3 * value / CALLS for name, value in best["calls"].items()},
        "mailbox": mailbox,
    }


def mailbox_rates(workers: Any, count: int = 2000) -> dict[str, float]:
    """Events that one mailbox takes in a second: one after the other, as a worker sends them, and many in flight."""
    ray, box = workers.ray, workers.mailbox
    ray.get(box.read.remote())  # it is there
    event = ("epoch", ({"epoch": 1, "step": 382}, [0.5] * 382, [0.1] * 382))
    one = seconds(lambda: [ray.get(box.put.remote(-1, event)) for _ in range(count // 10)]) / (count // 10)
    many = seconds(lambda: ray.get([box.put.remote(-1, event) for _ in range(count)])) / count
    never = ray.remote(num_cpus=99)(nothing)  # there are not that many cores
    refs = [never.remote(None) for _ in range(1000)]
    waited = min(seconds(lambda: ray.wait(refs, num_returns=len(refs), timeout=0)) for _ in range(5))
    for ref in refs:
        ray.cancel(ref)
    return {
        "waiting_per_s": 1 / one,
        "in_flight_per_s": 1 / many,
        "event_bytes": len(pickle.dumps(event)),
        "ray_wait_1000_ms": 1e3 * waited,
    }


def checkpoints(rounds: int) -> dict[str, Any]:
    """Bytes of a checkpoint, and seconds to write it to this disk, with its flush; bytes of a record."""
    found = {}
    for model, optimizer in (("small_cnn", "sgd"), ("resnet18", "sgdm")):
        spec = RunSpec(task="digits", model=model, optimizer=optimizer, epochs=60, schedule="cosine")
        with tempfile.TemporaryDirectory() as name, reproducible(CPU, False):
            stepper = Stepper(spec, CPU, None, Path(name))
            record = run_record.begin(stepper, {}, None)
            stepper.step()
            taken = [
                seconds(lambda s=stepper, r=record: checkpoint.save(s.folder, s, r, (0.0, 0.0))) for _ in range(rounds)
            ]
            size = (Path(name) / records.CHECKPOINT).stat().st_size
            found[model] = {"optimizer": optimizer, "bytes": size, "seconds": min(taken)}
    with tempfile.TemporaryDirectory() as name:
        make_run(Place("cpu", lambda event: None), replace(RUN, epochs=60), Path(name), Settings(root=Path(name)), {})
        found["record"] = {"epochs": 60, "bytes": sum(path.stat().st_size for path in Path(name).iterdir())}
    return found


def messages() -> dict[str, Any]:
    """Bytes that travel in a generation of the preset `universal-lstm`'s size, and what a process draws from seeds for it."""
    spec = replace(PRESETS["universal-lstm"], task="digits", held_out=1)
    trainer = build(spec, CPU)
    drawn = min(seconds(lambda: draw_again(trainer)) for _ in range(5))
    groups = trainer.groups()
    found = [Judged(indices, torch.rand(len(indices), spec.members), (0.1, 2.0)) for indices in groups]
    learned = seconds(lambda: trainer.finish(found))
    order = Order(spec, Path("/data"), trainer.state_dict())
    random = torch.Generator().manual_seed(0)
    directions = seconds(lambda: evolution.antithetic(spec.members // 2, len(trainer.weights), random))
    return {
        "tasks": spec.tasks,
        "members": spec.members,
        "weights": len(trainer.weights),
        "order_with_state_bytes": len(pickle.dumps(order)),
        "weights_bytes": trainer.weights.numel() * 4,
        "answer_bytes": len(pickle.dumps(found)),
        "draw_ms_per_task": 1e3 * drawn / spec.tasks,
        "directions_ms_per_task": 1e3 * directions,
        "update_ms_per_task": 1e3 * learned / spec.tasks,
    }


def draw_again(trainer: HorizonTrainer) -> None:
    trainer._drawn = None
    trainer.next_tasks()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    torch.set_num_threads(1)
    before = os.getloadavg()
    found = {"checkpoints": checkpoints(words.rounds), "messages": messages(), **over_workers(words.rounds)}
    record = {
        "benchmark": "executors",
        "machine": {"system": platform.platform(), "device": device_name(CPU), "cores": os.cpu_count()},
        "load": {"before": before, "after": os.getloadavg()},
        "versions": {**versions(), "ray": version("ray")},
        "commit": records.commit(),
        "settings": {"runs": RUNS, "run": RUN.describe(), "rounds": words.rounds},
        **found,
    }
    print(json.dumps(record, indent=1))
    if words.out:
        words.out.parent.mkdir(parents=True, exist_ok=True)
        words.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
