"""What meta-training costs, as ratios measured in one run: `MetaTrainer` against plain training of the same network.

Target: at T_val = 100 at most 3 % over plain training; a step with a meta-update at most 2.2 plain steps in the same
execution mode; peak memory at a meta-update at most that of plain training plus two copies of the weights. Beside it, the
textbook way: a look-ahead model built with `torch.func`, and the derivative taken through it by a second-order graph.

CPU: a small CNN on 3x16x16 pictures, batch 128. GPU: ResNet-18 (CIFAR stem), batch 128, eager, bf16 autocast,
channels_last, SGD with momentum. Needs torchvision for the GPU part.

    python benchmarks/metatrain_overhead.py [--out results/metatrain_overhead/here.json]
"""

import argparse
import json
import platform
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from step_overhead import microseconds, resnet18
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam

from mlrsnet import MetaTrainer
from mlrsnet.card import versions
from mlrsnet.nets import LSTMNet
from mlrsnet_lab.models.small_cnn import small_cnn
from mlrsnet_lab.records import commit

STEPS = 1_000_000


class Task:
    """A model, a training batch and a validation batch on a device."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        side = 32 if device == "cuda" else 16
        self.model = resnet18() if device == "cuda" else small_cnn((3, 32, 32), 10, width=32)
        self.x, self.xv = (torch.randn(128, 3, side, side, device=device) for _ in range(2))
        if device == "cuda":
            self.x, self.xv = (x.to(memory_format=torch.channels_last) for x in (self.x, self.xv))
        self.y, self.yv = (torch.randint(10, (128,), device=device) for _ in range(2))
        self.autocast = torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext()
        lr = torch.tensor(0.001, device=device) if device == "cuda" else 0.001
        self.optimizer = SGD(self.model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)

    def loss(self, x: torch.Tensor, y: torch.Tensor, forward: Callable[..., Any] | None = None) -> torch.Tensor:
        with self.autocast:
            return cross_entropy((forward or self.model)(x), y)

    def backward(self) -> torch.Tensor:
        loss = self.loss(self.x, self.y)
        self.optimizer.zero_grad()
        loss.backward()
        return loss

    def weight_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.model.parameters())


def plain(device: str) -> Callable[[], None]:
    task = Task(device)

    def step() -> None:
        task.backward()
        task.optimizer.step()

    return step


def meta(device: str, every: int) -> Callable[[], None]:
    task = Task(device)
    trainer = MetaTrainer(
        task.model,
        task.optimizer,
        total_steps=STEPS,
        val_loss=lambda: task.loss(task.xv, task.yv),
        net=LSTMNet(),
        num_classes=10,
        every=every,
        scale=0.01,
    )
    return lambda: trainer.step(task.backward())


def textbook(device: str) -> Callable[[], None]:
    """Every step: weights as a function of the LR, validation loss under them, derivative through a second-order graph."""
    task, net = Task(device), LSTMNet().to(device)
    meta_optimizer, state = Adam(net.parameters(), lr=1e-3, weight_decay=1e-4), net.initial_state()
    momentum = {name: torch.zeros_like(p) for name, p in task.model.named_parameters()}

    def step() -> None:
        weights = dict(task.model.named_parameters())
        loss = task.loss(task.x, task.y)
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        factor, _ = net(loss.detach().reshape(1), state)
        alpha = 0.001 * factor
        ahead, moves = {}, {}
        for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
            moves[name] = 0.9 * momentum[name] + gradient + 5e-4 * weight
            ahead[name] = weight - alpha * moves[name]
        buffers = {name: buffer.clone() for name, buffer in task.model.named_buffers()}
        val = task.loss(task.xv, task.yv, lambda x: functional_call(task.model, {**ahead, **buffers}, (x,)))
        meta_optimizer.zero_grad()
        for parameter, gradient in zip(net.parameters(), torch.autograd.grad(val, list(net.parameters())), strict=True):
            parameter.grad = gradient
        meta_optimizer.step()
        with torch.no_grad():
            factor, _ = net(loss.detach().reshape(1), state)
            for name, weight in weights.items():
                momentum[name].copy_(moves[name])
                weight -= 0.001 * factor * moves[name]

    return step


def peak(call: Callable[[], None], repeats: int) -> int:
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def measure(device: str) -> dict[str, Any]:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    steps = {
        "plain": plain(device),
        "every_100": meta(device, 100),
        "every_1": meta(device, 1),
        "textbook": textbook(device),
    }
    order = [("plain", 100), ("every_100", 100), ("every_1", 30), ("textbook", 30), ("every_100", 100), ("plain", 100)]
    rounds = []
    for _ in range(13):  # there and back, so that a machine that slows down disturbs all alike
        timings: dict[str, list[float]] = {name: [] for name in steps}
        for name, repeats in order:
            timings[name].append(microseconds(steps[name], repeats, wait))
        rounds.append({name: mean(values) for name, values in timings.items()})
    result = {"plain_step_us": median(timing["plain"] for timing in rounds[1:])}
    for key, name in (("every_100", "every_100"), ("meta_update_step", "every_1"), ("textbook_step", "textbook")):
        result[f"{key}_over_plain"] = median(timing[name] / timing["plain"] for timing in rounds[1:])
    if device == "cuda":
        busy = {name: device_time(steps[name]) for name in ("plain", "every_1", "textbook")}
        result |= {
            "plain_step_device_time_us": busy["plain"],
            "meta_update_step_device_time_over_plain": busy["every_1"] / busy["plain"],
            "textbook_step_device_time_over_plain": busy["textbook"] / busy["plain"],
        }
        steps.clear()
        result |= memory()
    return result


def device_time(call: Callable[[], None], repeats: int = 20) -> float:
    """Microseconds for which the GPU is busy in a call: the time without the host's launches."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profile.key_averages()) / repeats


def memory() -> dict[str, float]:
    """Peak memory of one kind of step at a time, with nothing else on the device."""
    weights = Task("cuda").weight_bytes()
    peaks = {}
    for name, make in {
        "plain": lambda: plain("cuda"),
        "meta": lambda: meta("cuda", 1),
        "textbook": lambda: textbook("cuda"),
    }.items():
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        step = make()
        peaks[name] = peak(step, 5) - before
        del step
    return {
        "weights_bytes": weights,
        "plain_peak_bytes": peaks["plain"],
        "meta_extra_in_copies_of_the_weights": (peaks["meta"] - peaks["plain"]) / weights,
        "textbook_extra_in_copies_of_the_weights": (peaks["textbook"] - peaks["plain"]) / weights,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, help="write the numbers as JSON")
    arguments.add_argument("--only", choices=("cpu", "gpu"), help="default: both, where there is a GPU")
    given = arguments.parse_args()
    out = given.out
    record: dict[str, Any] = {"versions": versions(), "commit": commit(), "machine": platform.platform()}
    torch.set_num_threads(2)
    if given.only != "gpu":
        record["cpu"] = {"device": f"CPU, {torch.get_num_threads()} threads", **measure("cpu")}
    if given.only != "cpu" and torch.cuda.is_available():
        record["gpu"] = {"device": torch.cuda.get_device_name(), **measure("cuda")}
    text = json.dumps(record, indent=1)
    print(text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
