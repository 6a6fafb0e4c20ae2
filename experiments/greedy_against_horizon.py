"""One step ahead (Algorithm 1) against whole trainings, at equal compute: the same network, the same small trainings.

Both learn an `LSTMNet` that reads loss and progress and begins as a fixed LR, on small trainings on digits. Compute is counted in
gradients of a training batch: a step is one, a meta-update's validation pass another. Algorithm 1 goes through one training after
another and keeps its network; the schedule it learned, and that of the full horizon, then drive the same held-out trainings. The
full horizon is judged by its averaged network after its meta LR has fallen to 0, Algorithm 1 by its last network at a constant
meta LR: each as it is meant to be used.

    python -m experiments.greedy_against_horizon [--out results/horizon/greedy_against_horizon.json]
"""

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam

from experiments import markdown, results
from mlrsnet import MetaTrainer
from mlrsnet.card import Card, versions
from mlrsnet.nets import LSTMNet
from mlrsnet.ranges import Fixed
from mlrsnet.schedule import Schedule
from mlrsnet_lab.distributions import inner_tasks
from mlrsnet_lab.horizon import Evolution, HorizonTrainer, Task, Tasks
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.records import commit

TASKS, MEMBERS, HIDDEN = 4, 16, 16
GAMMA = Fixed(1.0)


NAMES = (
    "before learning",
    "the end of whole trainings",
    "the first quarter of trainings, four times as many",
    "one step ahead (Algorithm 1)",
)
"""The objectives, in the order of the record."""


def table() -> list[str]:
    """Mean loss of held-out trainings, and the LR curve that was learned."""
    record = results.data("horizon/greedy_against_horizon.json")
    lines = []
    for name, row in zip(NAMES, record["rows"], strict=True):
        lrs, gap = row["lrs"], 100 * row["gap to cosine, one LR chosen on these tasks"]
        curve = f"{lrs[0]:.2f}, {lrs[len(lrs) // 2]:.2f}, {lrs[-1]:.3f}"
        spent = f"{row['gradients'] / 1e6:.2f} million" if "gradients" in row else ""
        lines.append([name, spent, f"{row['mean fitness']:.4f}", f"{gap:+.1f} %", curve])
    heads = [
        "learned from",
        "gradients",
        "mean validation loss",
        "gap to the best cosine",
        "LR at the start, halfway, at the end",
    ]
    return markdown.table(heads, lines)


def untrained(seed: int) -> Schedule:
    """A fixed LR that has to learn to anneal."""
    return Schedule(first_net(HIDDEN, anneal="none", seed=seed), Card(gamma=GAMMA))


def greedy(trainer: HorizonTrainer, net: LSTMNet, every: int, meta_lr: float, gradients: int) -> int:
    """Algorithm 1 over fresh trainings until the budget is spent; returns the number of them."""
    optimizer, spent, trainings = Adam(net.parameters(), lr=meta_lr), 0, 0
    while spent < gradients:
        task = trainer.tasks.sampler.sample(trainings, 1)[0]
        spent += task.total_steps + -(-task.total_steps // every)
        _greedy_training(task, net, optimizer, every)
        trainings += 1
    return trainings


def _greedy_training(task: Task, net: LSTMNet, optimizer: Adam, every: int) -> None:
    torch.manual_seed(task.seed)
    model, inputs, labels = task.model(task.data), task.data.inputs, task.labels()
    inner = SGD(model.parameters(), lr=0.1, weight_decay=task.weight_decay)
    shut = torch.where(torch.arange(task.data.num_classes) < task.num_classes, 0.0, -torch.inf)

    def loss(index: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(inputs[index]) + shut, labels[index])

    assert task.val is not None
    held_out = task.val

    def val_loss() -> torch.Tensor:
        return loss(held_out[torch.randint(len(held_out), (task.batch_size,))])

    meta = MetaTrainer(
        model,
        inner,
        total_steps=task.total_steps,
        val_loss=val_loss,
        net=net,
        num_classes=task.num_classes,
        every=every,
        meta_optimizer=optimizer,
        num_phases=1,
        gamma=GAMMA,
    )
    order, _ = Batches(task).take(task.total_steps)
    for index in order:
        inner.zero_grad()
        found = loss(index)
        found.backward()
        meta.step(found)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=30)
    parser.add_argument("--every", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--meta-lr", type=float, nargs="+", default=[1e-3, 1e-2])
    parser.add_argument("--truncated", type=float, help="also judge trainings after this part of their horizon")
    parser.add_argument("--held-out", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    trainer = HorizonTrainer(
        Tasks(inner_tasks("digits"), TASKS, held_out=words.held_out),
        untrained(words.seed),
        Evolution(words.generations, MEMBERS, seed=words.seed),
    )
    rows: list[dict[str, Any]] = [{"objective": "untrained", **_judge(trainer, trainer.schedule())}]
    begin = time.perf_counter()
    gradients = sum(trainer.step().total_steps * TASKS * MEMBERS for _ in range(words.generations))
    spent = {"gradients": gradients, "seconds": time.perf_counter() - begin}
    rows.append({"objective": "full horizon", **spent, **_judge(trainer, trainer.schedule())})
    if words.truncated:
        rows.append(_truncated(words, gradients, trainer))
        print(json.dumps(rows[-1]), flush=True)
        _write(words.out, words, rows)
    for every in words.every:
        for meta_lr in words.meta_lr:
            net, begin = first_net(HIDDEN, anneal="none", seed=words.seed), time.perf_counter()
            trainings = greedy(trainer, net, every, meta_lr, gradients)
            setting = {"objective": "one step ahead", "every": every, "meta_lr": meta_lr, "trainings": trainings}
            spent = {"gradients": gradients, "seconds": time.perf_counter() - begin}
            rows.append({**setting, **spent, **_judge(trainer, Schedule(net, Card(gamma=GAMMA)))})
            print(json.dumps(rows[-1]), flush=True)
            _write(words.out, words, rows)
    print(json.dumps(rows, indent=1))


def _truncated(words: argparse.Namespace, gradients: int, judge: HorizonTrainer) -> dict[str, Any]:
    """The same trainings, stopped and judged after a part of their horizon; more of them, for the same compute."""
    sampler = replace(inner_tasks("digits"), judged_after=words.truncated)
    trainer = HorizonTrainer(
        Tasks(sampler, TASKS, held_out=0),
        untrained(words.seed),
        Evolution(round(words.generations / words.truncated), MEMBERS, seed=words.seed),
    )
    begin = time.perf_counter()
    schedule = trainer.run()
    row = {"objective": f"judged after {words.truncated:g} of the horizon", "generations": trainer.number}
    return {**row, "gradients": gradients, "seconds": time.perf_counter() - begin, **_judge(judge, schedule)}


def _judge(trainer: HorizonTrainer, schedule: Schedule) -> dict[str, Any]:
    assert trainer.held_out is not None
    found = trainer.held_out.compare(trainer.number, schedule)
    return {**found.summary(), "lrs": [round(lr, 4) for lr in found.lrs]}


def _write(out: Path | None, words: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if out is not None:
        settings = {key: value for key, value in vars(words).items() if key != "out"}
        settings |= {"tasks": TASKS, "members": MEMBERS, "hidden": HIDDEN}
        record = {"settings": settings, "versions": versions(), "commit": commit(), "machine": platform.platform()}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({**record, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
