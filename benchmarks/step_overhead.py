"""What `LearnedLR.step` costs, as ratios measured in one run.

CPU: one step of the paper's schedule (LSTM, 50 cells, 3 phases, float LR) against `CosineAnnealingLR.step` and against
the whole training step of a small CNN at batch 64. Target: 60 microseconds, one fifth of the CNN's step. A measured range
also measures every step, from SGD's gradients or, for AdamW, from a copy of the weights. Target: 5 % of the CNN's step.

GPU: the same inside the captured training step of ResNet-18 (CIFAR stem, batch 128, bf16, channels_last, fused SGD with weight
decay, so that a measured range needs the copy; with momentum it does not).
Target on an H200: 15 microseconds, 0.5 % of the step, no synchronisation. Needs torchvision.

    python benchmarks/step_overhead.py [--out results/step_overhead.json]
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, Schedule
from mlrsnet._engine.device import DeviceBackend
from mlrsnet.card import versions
from mlrsnet.lab.models.small_cnn import small_cnn

STEPS = 1_000_000  # a horizon none of the loops below reaches


def paper_schedule() -> Schedule:
    torch.manual_seed(0)
    return Schedule([LSTMNet() for _ in range(3)])


def measured_schedule() -> Schedule:
    return Schedule(paper_schedule().phases, Card(gamma=Gamma("measured", value=0.1)))


def measuring(model: nn.Module, optimizer: Optimizer) -> Callable[[], None]:
    """All that a measured range adds to a step, without the step: the LR, and what the optimizer's hooks do."""
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS, num_classes=10)
    loss, meter = torch.tensor(2.3), lr.engine.meter
    assert meter is not None

    def measure() -> None:
        lr.step(loss)
        meter.enter(optimizer, with_closure=False)
        meter.leave(optimizer)

    return measure


def microseconds(call: Callable[[], Any], repeats: int, wait: Callable[[], None] = lambda: None) -> float:
    """One timing of `repeats` calls."""
    wait()
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    wait()
    return 1e6 * (time.perf_counter() - begin) / repeats


def interleaved(
    calls: dict[str, Callable[[], Any]], repeats: int, rounds: int, wait: Callable[[], None]
) -> dict[str, float]:
    """Median microseconds of each call, timed in turns, so that a busy machine disturbs all equally."""
    for call in calls.values():
        microseconds(call, repeats, wait)
    timings = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            timings[name].append(microseconds(call, repeats, wait))
    return {name: median(values) for name, values in timings.items()}


def on_cpu() -> dict[str, float]:
    torch.manual_seed(0)
    model, images, labels = small_cnn(), torch.randn(64, 1, 8, 8), torch.randint(10, (64,))
    optimizer = SGD(model.parameters(), lr=0.1)
    learned = LearnedLR(optimizer, paper_schedule(), total_steps=STEPS, num_classes=10)
    cosine = CosineAnnealingLR(SGD(model.parameters(), lr=0.1), STEPS)
    cosine.optimizer.step()
    loss = torch.tensor(2.3)

    def train() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    learned.trust_order()  # they are timed apart, not as one loop
    train()
    calls = {
        "learned": lambda: learned.step(loss),
        "measured": measuring(model, SGD(model.parameters(), lr=0.1)),
        "measured_copy": measuring(model, AdamW(model.parameters(), lr=0.1)),
        "cosine": cosine.step,
        "training_step": train,
    }
    found = interleaved(calls, repeats=300, rounds=15, wait=lambda: None)
    return {
        "learned_us": found["learned"],
        "measured_us": found["measured"],
        "measured_with_a_copy_us": found["measured_copy"],
        "cosine_us": found["cosine"],
        "training_step_us": found["training_step"],
        "learned_over_cosine": found["learned"] / found["cosine"],
        "learned_over_training_step": found["learned"] / found["training_step"],
        "measured_over_training_step": found["measured"] / found["training_step"],
        "measured_with_a_copy_over_training_step": found["measured_copy"] / found["training_step"],
    }


def resnet18() -> nn.Module:
    from torchvision.models import resnet18 as torchvision_resnet18

    model = torchvision_resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model.cuda().to(memory_format=torch.channels_last)


def captured(call: Callable[[], Any], warm_up: int = 3) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def captured_training(schedule: Schedule | None, momentum: float = 0.0) -> tuple[Callable[[], None], LearnedLR | None]:
    torch.manual_seed(0)
    model = resnet18()
    images = torch.randn(128, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(10, (128,), device="cuda")
    start = torch.tensor(0.01, device="cuda")
    optimizer = SGD(model.parameters(), lr=start, momentum=momentum, weight_decay=5e-4, fused=True)
    lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=10, scale=0.01) if schedule else None

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        if lr is not None:
            lr.step(loss)
        optimizer.step()

    graph = captured(train, warm_up=5)

    def replay(keep: object = train) -> None:  # the graph reads buffers that only `train` holds
        graph.replay()

    return replay, lr


def captured_schedule(fused: bool, steps: int) -> Callable[[], None]:
    """Only LR steps, `steps` of them, in one graph."""
    optimizer = SGD([nn.Parameter(torch.ones(1, device="cuda"))], lr=torch.tensor(0.1, device="cuda"), fused=True)
    lr = LearnedLR(optimizer, paper_schedule(), total_steps=STEPS, num_classes=10)
    if not fused:
        lr.engine.backend = DeviceBackend(lr.engine.rule, STEPS, None, 0.1, torch.device("cuda", 0), fused=False)
        lr.engine.bind()
    loss = torch.tensor(2.3, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # any synchronisation raises
    lr.step(loss)
    torch.cuda.set_sync_debug_mode("default")
    graph = captured(lambda: [lr.step(loss) for _ in range(steps)])

    def replay(keep: object = (lr, loss)) -> None:
        graph.replay()

    return replay


def on_gpu(copies: int = 3, steps: int = 100) -> dict[str, Any]:
    """Several copies of both training steps, since where a graph's buffers lie in memory changes its time a little."""
    calls, driven = {"alone": captured_schedule(True, steps), "torch": captured_schedule(False, steps)}, []
    kinds = {"plain": (None, 0.0), "driven": (paper_schedule(), 0.0), "measured": (measured_schedule(), 0.0)}
    kinds |= {"plain_momentum": (None, 0.9), "measured_momentum": (measured_schedule(), 0.9)}
    for copy in range(copies):
        for kind, (schedule, momentum) in kinds.items():
            calls[f"{kind}{copy}"], lr = captured_training(schedule, momentum)
            driven += [lr] if schedule else []
    found = interleaved(calls, repeats=50, rounds=25, wait=torch.cuda.synchronize)
    assert all(lr is not None and lr.status()["step"] > 50 * 25 for lr in driven), "a captured schedule did not advance"
    means = {kind: sum(found[f"{kind}{copy}"] for copy in range(copies)) / copies for kind in kinds}
    plain, with_lr = means["plain"], means["driven"]
    return {
        "training_step_us": plain,
        "training_step_copies_us": [found[f"plain{copy}"] for copy in range(copies)],
        "driven_training_step_us": with_lr,
        "driven_training_step_copies_us": [found[f"driven{copy}"] for copy in range(copies)],
        "learned_alone_us": found["alone"] / steps,
        "learned_alone_without_the_kernel_us": found["torch"] / steps,
        "added_to_training_step_us": with_lr - plain,
        "added_over_training_step": with_lr / plain - 1,
        "measured_adds_us": means["measured"] - plain,
        "measured_adds_over_training_step": means["measured"] / plain - 1,
        "measured_momentum_adds_us": means["measured_momentum"] - means["plain_momentum"],
        "measured_momentum_adds_over_training_step": means["measured_momentum"] / means["plain_momentum"] - 1,
        "alone_over_training_step": found["alone"] / steps / plain,
        "synchronisations": 0,  # captured_schedule raises on the first
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, help="write the numbers as JSON")
    out = arguments.parse_args().out
    record: dict[str, Any] = {"versions": versions(), "machine": platform.platform()}
    torch.set_num_threads(2)
    record["cpu"] = {"device": f"CPU, {torch.get_num_threads()} threads", **on_cpu()}
    if torch.cuda.is_available():
        record["gpu"] = {"device": torch.cuda.get_device_name(), **on_gpu()}
    text = json.dumps(record, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
