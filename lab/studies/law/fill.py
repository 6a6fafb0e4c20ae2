"""Train a row: under one relative size after another, and under decays from one LR after another.

Both grids grow until their best is not at an edge: sizes by a factor of two, LRs by four, then by two around the best.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import mlrsnet
from lab.studies.law.families import FAMILIES, Draw, Task
from mlrsnet.default import Default, Size
from mlrsnet.facts import read_facts

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": SGD,
    "momentum": lambda *a, **k: SGD(*a, **k, momentum=0.9),
    "adam": Adam,
    "adamw": AdamW,
}
USUAL = {"sgd": 0.1, "momentum": 0.02, "adam": 1e-3, "adamw": 1e-3}
DECAYS = {"adamw": (0.0, 0.01, 0.1)}
WARMUP = 0.05
FALLS = (0.5,)
MORE_FALLS = (0.0, 0.25, 1.0)
SEEN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Shares of a training at which its sensors are kept."""

WORST = 1e6


@dataclass(frozen=True)
class Plan:
    """A training."""

    optimizer: str
    steps: int
    batch: int
    examples: int
    weight_decay: float
    clip: float | None
    seed: int


def plan_of(draw: Draw, task: Task) -> Plan:
    """Half of the rows see their examples at most three times."""
    optimizer, steps = draw.pick(task.optimizers), round(draw.between(*task.steps))
    batch, epochs = draw.pick(task.batches), draw.between(0.3, 3) if draw.chance(0.5) else draw.between(3, 60)
    wanted = max(100, batch, round(steps * batch / epochs))
    examples = task.examples if task.whole else min(task.examples, wanted)
    steps = steps if task.whole else max(60, min(steps, round(epochs * examples / batch)))
    decay, clip = draw.pick(DECAYS.get(optimizer, (0.0, 1e-4, 5e-4))), draw.pick((None, None, 1.0))
    return Plan(optimizer, steps, batch, examples, decay, clip, draw.number)


def train(task: Task, plan: Plan, law: Default | float) -> dict[str, Any]:
    """One training: under the default with a law, or under a linear decay from an LR. Its error, loss and sensors.

    What is fitted is the law: nothing is kept near where it is.
    """
    torch.manual_seed(plan.seed)
    model = task.build()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    lr = law if isinstance(law, float) else 0.1
    optimizer = OPTIMIZERS[plan.optimizer](weights, lr=lr, weight_decay=plan.weight_decay)
    learned = (
        None if isinstance(law, float) else mlrsnet.LearnedLR(optimizer, law, total_steps=plan.steps, trained=False)
    )
    decay = LambdaLR(optimizer, lambda step: _decay(step, plan.steps)) if learned is None else None
    marks, seen, total, count = {round(share * plan.steps) for share in SEEN}, [], 0.0, 0
    for step, index in enumerate(batches(plan.steps, plan.examples, plan.batch, plan.seed)):
        optimizer.zero_grad()
        loss = task.loss(model, index)
        value = float(loss.detach())
        if not math.isfinite(value) or value > WORST:
            return {"error": math.inf, "loss": math.inf, "seen": seen}
        total, count = total + value, count + 1
        loss.backward()
        if plan.clip:
            torch.nn.utils.clip_grad_norm_(weights, plan.clip)
        if learned is not None:
            if step in marks:
                known = learned.status()
                seen.append(
                    [step, total / count, *(known.get(name, math.nan) for name in ("step_length", "distance", "level"))]
                )
                total, count = 0.0, 0
            learned.step(loss)
        optimizer.step()
        if decay is not None:
            decay.step()
    model.eval()
    with torch.no_grad():
        error, loss_ = task.judge(model)
    return {
        "error": error if math.isfinite(error) else math.inf,
        "loss": loss_ if math.isfinite(loss_) else math.inf,
        "seen": seen,
    }


def _decay(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / max(1, round(WARMUP * steps))) * (1 - step / steps)


def batches(steps: int, examples: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Epoch after epoch in a new order; what does not fill a batch is left out."""
    generator, left = torch.Generator().manual_seed(seed), steps
    while left:
        order = torch.randperm(examples, generator=generator)
        for index in order.split(batch)[: max(1, examples // batch)]:
            yield index
            left -= 1
            if not left:
                return


def bracketed(judge: Callable[[float], float], grid: Sequence[float], factor: float, most: int) -> dict[float, float]:
    """The judgement of each value; the grid grows until its best is not at an edge, to at most so many values."""
    found = {value: judge(value) for value in grid}
    while len(found) < most:
        order = sorted(found)
        best = min(order, key=found.__getitem__)
        if best == order[0]:
            found[best / factor] = judge(best / factor)
        elif best == order[-1]:
            found[best * factor] = judge(best * factor)
        else:
            break
    return found


def fill_row(number: int, folder: Path) -> dict[str, Any]:
    """A small training, drawn from its number."""
    draw, name = Draw(number), tuple(FAMILIES)[number % len(FAMILIES)]
    task = FAMILIES[name](draw, folder)
    return filled(number, name, task, plan_of(draw, task), MORE_FALLS if number // len(FAMILIES) % 5 == 0 else ())


def filled(number: int, name: str, task: Task, plan: Plan, more_falls: Sequence[float] = ()) -> dict[str, Any]:
    """Everything about a row."""
    torch.set_num_threads(1)
    begin = time.perf_counter()
    model = task.build()
    facts = read_facts([weight for weight in model.parameters() if weight.requires_grad])
    facts = facts._replace(is_adaptive=plan.optimizer.startswith("adam"), batch_size=plan.batch)
    kept: dict[str, Any] = {"sizes": [], "decays": []}

    def sized(fall: float) -> Callable[[float], float]:
        def judge(size: float) -> float:
            found = train(task, plan, Default(Size.fixed(size), fall=fall))
            kept["sizes"].append([fall, size, found["error"], found["loss"], found["seen"] if fall == 0.1 else []])
            return _level(found)

        return judge

    def decayed(lr: float) -> float:
        found = train(task, plan, lr)
        kept["decays"].append([lr, found["error"], found["loss"]])
        return _level(found)

    law = min(0.5, Size()(facts, plan.steps))
    sizes = bracketed(sized(0.1), [law / 2, law, 2 * law, 4 * law], 2, 9)
    best = min(sizes, key=sizes.__getitem__)
    for fall in (*FALLS, *more_falls):
        for size in (best / 2, best, 2 * best):
            sized(fall)(size)
    usual = USUAL[plan.optimizer]
    lrs = bracketed(decayed, [usual / 4, usual, 4 * usual], 4, 8)
    best = min(lrs, key=lrs.__getitem__)
    for lr in (best / 2, 2 * best):
        decayed(lr)
    return {
        "number": number,
        "family": name,
        **asdict(plan),
        **{key: getattr(facts, key) for key in ("matrices", "parameters", "is_trained")},
        "depth": 1 if facts.has_norms else facts.depth,
        "all_parameters": sum(weight.numel() for weight in model.parameters()),
        "sequence": task.sequence,
        "seconds": time.perf_counter() - begin,
        **kept,
    }


def _level(found: dict[str, Any]) -> float:
    """What is compared: the error, and a little of the loss where errors are equal."""
    return found["error"] + 1e-3 * min(found["loss"], 100.0) if math.isfinite(found["error"]) else math.inf


Make = Callable[[int, Path], dict[str, Any]]


def fill(folder: Path, out: Path, rows: Sequence[int], workers: int, seconds: float, make: Make = fill_row) -> None:
    """Add the rows that `out` does not have yet, one a line, until so many seconds have passed."""
    done = {json.loads(line)["number"] for line in out.read_text().splitlines()} if out.is_file() else set()
    end = time.monotonic() + seconds
    jobs = [(number, folder, end, make) for number in rows if number not in done]
    with get_context("spawn").Pool(workers) as pool, out.open("a") as file:
        for row in pool.imap_unordered(_fill_in_time, jobs):
            if row is not None:
                file.write(json.dumps(row) + "\n")
                file.flush()


def _fill_in_time(job: tuple[int, Path, float, Make]) -> dict[str, Any] | None:
    number, folder, end, make = job
    if time.monotonic() > end:
        return None
    try:
        return make(number, folder)
    except Exception as error:
        return {"number": number, "failed": f"{type(error).__name__}: {error}"}
