"""How long an epoch of every training of scale cpu takes on one core: what `mlrsnet reproduce` says before it starts.

A few steps and one evaluation of each kind, in CPU seconds of one thread, so that other programs disturb little.

    python benchmarks/costs.py [--data FOLDER] [--out lab/src/mlrsnet_lab/costs.json]
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from mlrsnet.card import versions
from mlrsnet_lab import costs, records
from mlrsnet_lab.devices import device_name
from mlrsnet_lab.jobs import choose, in_order
from mlrsnet_lab.recipes import RECIPES
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper
from mlrsnet_lab.width import POINTS

WARM_UP, STEPS = 3, 10


def kinds() -> dict[str, RunSpec]:
    """One training of every kind; a schedule that another run learns stands for itself."""
    found: dict[str, RunSpec] = {}
    for recipe in RECIPES.values():
        if "cpu" in recipe.scales and recipe.measure is None:
            for job in in_order(choose(recipe, "cpu"), recipe.seeds[0]).values():
                spec = job.cell.spec
                if spec is not None and spec.task_options.get("corruption") != "frost":
                    found.setdefault(costs.kind(spec.to_dict()), spec)
    return found


def seconds_per_epoch(spec: RunSpec, root: Path | None) -> float:
    """Steps of an epoch, its share of an evaluation, and of rays at the end."""
    if spec.schedule == "learned" and spec.schedule_options.get("schedule") is None:
        spec = RunSpec.from_dict(spec.to_dict() | {"schedule": "fixed", "schedule_options": {}})
    if spec.schedule == "direct":
        return _pass(replace(spec, epochs=spec.schedule_options["passes"]), root)
    stepper = Stepper(spec, torch.device("cpu"), root)
    for _ in range(WARM_UP):
        stepper.step()
    step = _cpu_seconds(lambda: [stepper.step() for _ in range(STEPS)]) / STEPS
    evaluation = _cpu_seconds(lambda: stepper.evaluate("val", "test"))
    rays = spec.rays and spec.rays * POINTS * _cpu_seconds(lambda: stepper.evaluate("train", "test"))
    return step * stepper.steps_per_epoch + evaluation / spec.eval_every + rays / spec.epochs


def _pass(spec: RunSpec, root: Path | None) -> float:
    """Of a pass of one epoch: forward, and all the way back before the next one's first step."""
    stepper = Stepper(spec, torch.device("cpu"), root)
    return _cpu_seconds(lambda: [stepper.step() for _ in range(stepper.steps_per_epoch + 1)])


def _cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    """Measure every kind; one whose package or data are missing is left out, and said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=costs.TABLE)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, float] = {}
    for kind, spec in kinds().items():
        try:
            found[kind] = round(seconds_per_epoch(spec, given.data), 3)
            print(f"{found[kind]:8.2f} s  {kind}", flush=True)
        except (ImportError, FileNotFoundError) as error:
            print(f"left out: {kind}: {error}", flush=True)
    made = {"device": device_name(torch.device("cpu")), "versions": versions(), "commit": records.commit()}
    given.out.write_text(json.dumps({"seconds_per_epoch": found, **made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
