"""What a population of trainings costs, as ratios measured in one run: all at once against one by one.

Target on one H200: 128 trainings of the patch network, batch 128, at 480 captured steps per second or better; memory linear
in the members. The pictures are random numbers of CIFAR-10's size at 16x16: their values do not matter here.

    python benchmarks/horizon.py [--out results/horizon/speed-here.json]
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD

from mlrsnet.card import Card, versions
from mlrsnet.ranges import Fixed
from mlrsnet.schedule import Schedule
from mlrsnet_lab.devices import device_name
from mlrsnet_lab.horizon import Compute, Data, TaskSampler
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.horizon.fitness import calibrated_loss
from mlrsnet_lab.horizon.policies import Networks
from mlrsnet_lab.horizon.population import Population
from mlrsnet_lab.horizon.training import Training
from mlrsnet_lab.models import build_image
from mlrsnet_lab.records import commit

TASKS, BATCH = 8, 128


def patch_net(data: Data) -> torch.nn.Module:
    return build_image("patch_net", (3, 16, 16), data.num_classes)


def tasks(data: Data, steps: int, count: int) -> list[Any]:
    sampler = TaskSampler([data], [patch_net], horizons=(steps, steps), batch_sizes=(BATCH,), val_size=1000)
    return sampler.sample(0, count)


def population(data: Data, members: int, chosen: list[Any]) -> Population:
    net = first_net()
    policy = Networks(Schedule(net, Card(gamma=Fixed(1.0))), len(chosen) * members, data.inputs.device)
    row = parameters_to_vector(net.parameters()).detach().to(data.inputs.device)
    policy.configure(row.expand(len(chosen) * members, -1))
    return Population(chosen[0], len(chosen), members, policy, Compute(data.inputs.device), data)


def seconds(work: Any, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def one_by_one(task: Any, device: torch.device) -> None:
    """A plain loop over one task, at a fixed LR."""
    model = task.model(task.data).to(device)
    optimizer = SGD(model.parameters(), lr=0.1, weight_decay=task.weight_decay)
    order, _ = Batches(task).take(task.total_steps)
    for index in order.to(device):
        optimizer.zero_grad()
        cross_entropy(model(task.data.inputs[index]), task.data.targets[index]).backward()
        optimizer.step()


def measure(device: torch.device, members: tuple[int, ...], steps: int) -> dict[str, Any]:
    data = Data(torch.randn(50_000, 3, 16, 16), torch.randint(10, (50_000,)), 10, mirrored=True).to(device)
    chosen = tasks(data, steps, TASKS)
    alone = min(seconds(lambda: one_by_one(chosen[0], device), device) for _ in range(2))
    found: dict[str, Any] = {"steps_per_second_one_by_one": steps / alone, "populations": []}
    for count in members:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        made = population(data, count // TASKS, chosen)
        Training(made, chosen, calibrated_loss).run()  # captures the step
        whole = min(seconds(lambda made=made: Training(made, chosen, calibrated_loss).run(), device) for _ in range(2))
        line = {
            "trainings": count,
            "steps_per_second": steps / whole,
            "over_one_by_one": count * alone / whole,
        }
        if device.type == "cuda":
            line["peak_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
        found["populations"].append(line)
        print(json.dumps(line), flush=True)
        del made
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=1000 if torch.cuda.is_available() else 20)
    parser.add_argument("--members", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    device = torch.device(words.device)
    record = {
        "versions": versions(),
        "commit": commit(),
        "machine": {"system": platform.platform(), "device": device_name(device)},
        "settings": {"tasks": TASKS, "batch": BATCH, "steps": words.steps, "network": "patch_net, 16x16"},
        **measure(device, tuple(words.members), words.steps),
    }
    print(json.dumps(record, indent=1))
    if words.out:
        words.out.parent.mkdir(parents=True, exist_ok=True)
        words.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
