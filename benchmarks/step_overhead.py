"""What `LearnedLR` adds to a step, as ratios measured in one run.

CPU, one thread: whole training steps under the default, with float and with tensor LRs, under the paper's network,
Schedule-Free's and Prodigy's AdamW, each against the same step of AdamW under `CosineAnnealingLR`, timed in turns: an MLP of 2,000
weights, a CNN of 0.3 million, a GPT of 10 million. Beside it what each keeps in memory beyond weights and gradients. Targets: 1.02
for the CNN and the GPT, 1.15 for the MLP, 1.6 for the MLP with tensor LRs.

Counts: functions and files of this package that a step and a construction enter, and calls of ATen, by dispatch. Targets: 40 in 9,
60 in 12, three calls for each matrix of more than 4,096 entries and 15 more.

GPU: the captured training step of ResNet-18 (CIFAR stem, batch 128, bf16, channels_last, fused SGD with weight decay, with momentum
and without). No synchronisation. Needs torchvision.

    python benchmarks/step_overhead.py [--out results/step_overhead/cpu.json]
"""

import argparse
import gc
import json
import platform
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import prodigyopt
import schedulefree
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils._python_dispatch import TorchDispatchMode

import mlrsnet
from mlrsnet import LearnedLR, Schedule
from mlrsnet.card import versions
from mlrsnet.default import Default
from mlrsnet.law import Law
from mlrsnet.nets import LSTMNet
from mlrsnet.sensors import ENTRIES
from mlrsnet_lab.models.transformer import Block
from mlrsnet_lab.records import commit

STEPS = 1_000_000  # a horizon none of the loops below reaches


def paper_schedule() -> Schedule:
    torch.manual_seed(0)
    return Schedule([LSTMNet() for _ in range(3)])


def run_hooks(optimizer: Optimizer) -> None:
    """What `optimizer.step()` calls before and after the step."""
    for hook in (*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()):
        hook(optimizer, (), {})


def adding(optimizer: Optimizer, law: Law, loss: torch.Tensor) -> Callable[[], None]:
    """All that a law adds to a step, without the step: the loss, and what the optimizer's hooks do."""
    lr = LearnedLR(optimizer, law, total_steps=STEPS, num_classes=10)

    def add() -> None:
        lr.step(loss)
        run_hooks(optimizer)

    return add


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


def in_turns(
    calls: dict[str, Callable[[], Any]], repeats: int, rounds: int, before: Callable[[], None]
) -> dict[str, np.ndarray]:
    """Microseconds of each call in every round. In a round all are timed once, in a new order."""
    timings: dict[str, list[float]] = {name: [] for name in calls}
    chance = random.Random(0)
    for turn in range(rounds + 1):
        for name in chance.sample(list(calls), len(calls)):
            before()
            took = microseconds(calls[name], repeats)
            if turn:  # the first warms up
                timings[name].append(took)
    return {name: np.array(found) for name, found in timings.items()}


def median_error(values: np.ndarray) -> float:
    """Standard error of a median, by the bootstrap."""
    chosen = np.random.default_rng(0).integers(len(values), size=(1000, len(values)))
    return float(np.median(values[chosen], axis=1).std())


@dataclass
class Training:
    """A model with one batch, on which every optimizer takes its steps: where weights lie in memory changes times a little."""

    model: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor

    def __post_init__(self) -> None:
        self._start = [weight.detach().clone() for weight in self.model.parameters()]

    @torch.no_grad()
    def begin_again(self) -> None:
        for weight, start in zip(self.model.parameters(), self._start, strict=True):
            weight.copy_(start)

    def loss(self) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(self.inputs).flatten(0, -2), self.targets.flatten())

    @property
    def weights(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())


def mlp() -> Training:
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    return Training(model, torch.randn(32, 20), torch.randint(10, (32,)))


def cnn() -> Training:
    layers: list[nn.Module] = []
    for before, width in ((3, 32), (32, 64), (64, 128), (128, 156)):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(156, 10))
    return Training(model, torch.randn(64, 3, 16, 16), torch.randint(10, (64,)))


def gpt() -> Training:
    blocks = [Block(384, 6, dropout=0.0) for _ in range(6)]
    model = nn.Sequential(nn.Embedding(65, 384), *blocks, nn.LayerNorm(384), nn.Linear(384, 65))
    return Training(model, torch.randint(65, (8, 64)), torch.randint(65, (8, 64)))


TRAININGS = {"mlp": (mlp, 30, 200), "cnn": (cnn, 2, 100), "gpt": (gpt, 1, 30)}
"""Name: (training, steps in a timing, timings)."""


def under(kind: str, training: Training) -> Callable[[], None]:
    """A whole training step, and its schedule."""
    weights, lr = list(training.model.parameters()), 1e-3
    if kind == "schedule-free":
        optimizer: Any = schedulefree.AdamWScheduleFree(weights, lr=2.5e-3)
        optimizer.train()
    elif kind == "prodigy":
        optimizer = prodigyopt.Prodigy(weights)
    else:
        optimizer = AdamW(weights, lr=torch.tensor(lr) if kind.endswith("tensor") else lr)
    learned = None
    if kind.startswith(("default", "untold", "lstm")):
        law: Law = paper_schedule() if kind.startswith("lstm") else Default()
        learned = LearnedLR(
            optimizer, law, total_steps=STEPS, num_classes=10, max_lr=lr
        )  # no network is to be trained here
    cosine = CosineAnnealingLR(optimizer, STEPS) if kind.startswith("cosine") else None

    def step() -> None:
        optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        if learned is not None and not kind.startswith("untold"):
            learned.step(loss)
        optimizer.step()
        if cosine is not None:
            cosine.step()

    return step


KINDS = ("cosine", "cosine tensor", "default", "default tensor", "untold", "lstm", "schedule-free", "prodigy")


def held(kind: str, make: Callable[[], Training]) -> int:
    """Bytes of tensors that are kept after three steps, beyond weights, gradients and batch."""
    training = make()
    step = under(kind, training)
    for _ in range(3):
        step()
    own = [training.inputs, training.targets, *training.model.buffers(), *training._start]
    for weight in training.model.parameters():
        own += [weight, weight.grad]
    known = {one.untyped_storage().data_ptr() for one in own if one is not None}
    gc.collect()
    found = {}
    for one in gc.get_objects():
        if isinstance(one, torch.Tensor) and one.device.type == "cpu":
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(size for place, size in found.items() if place not in known)


def on_cpu(name: str) -> dict[str, Any]:
    make, repeats, rounds = TRAININGS[name]
    torch.manual_seed(0)
    empty = held("cosine", lambda: Training(nn.Linear(1, 1), torch.ones(1, 1), torch.zeros(1, dtype=torch.int64)))
    kept = {kind: held(kind, make) - empty for kind in KINDS}
    training = make()
    calls = {kind: under(kind, training) for kind in KINDS}
    times = in_turns(calls, repeats, rounds, before=training.begin_again)
    ratios = {kind: times[kind] / times["cosine tensor" if kind.endswith("tensor") else "cosine"] for kind in KINDS}
    return {
        "weights": training.weights,
        "cosine_us": float(np.median(times["cosine"])),
        "ratio": {kind: float(np.median(found)) for kind, found in ratios.items()},
        "standard_error": {kind: median_error(found) for kind, found in ratios.items()},
        "kept_bytes": kept,
        "added_bytes": {kind: kept[kind] - kept["cosine"] for kind in KINDS},
    }


def entered(call: Callable[[], Any]) -> dict[str, int]:
    """How many functions of this package, and of how many files, a call enters."""
    found, root = set(), str(Path(mlrsnet.__file__).parent)

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            found.add((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(watch)
    call()
    sys.setprofile(None)
    return {"functions": len(found), "files": len({file for file, _ in found})}


class Calls(TorchDispatchMode):
    """Counts calls of ATen."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def counts(kind: type[Optimizer], **options: Any) -> dict[str, Any]:
    """Of a step of the default with a loss, and of its construction."""
    model = nn.Sequential(nn.Linear(20, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer, made = kind(model.parameters(), lr=0.1, **options), []  # type: ignore[call-arg]
    construction = entered(lambda: made.append(LearnedLR(optimizer, total_steps=STEPS)))
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 20)), torch.randint(10, (8,)))
        optimizer.zero_grad()
        loss.backward()
        made[0].step(loss)
        optimizer.step()
    with Calls() as calls:
        made[0].step(loss)
        run_hooks(optimizer)
    step = entered(lambda: (made[0].step(loss), optimizer.step()))
    large = sum(weight.numel() > ENTRIES for weight in model.parameters() if weight.ndim > 1)
    return {
        "step": step,
        "construction": construction,
        "aten_calls": calls.count,
        "aten_calls_allowed": 3 * large + 15,
        "large_matrices": large,
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


def captured_training(law: Law | None, momentum: float = 0.0) -> tuple[Callable[[], None], LearnedLR | None]:
    torch.manual_seed(0)
    model = resnet18()
    images = torch.randn(128, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(10, (128,), device="cuda")
    start = torch.tensor(0.01, device="cuda")
    optimizer = SGD(model.parameters(), lr=start, momentum=momentum, weight_decay=5e-4, fused=True)
    lr = LearnedLR(optimizer, law, total_steps=STEPS, num_classes=10, scale=0.01) if law else None

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


def captured_schedule(steps: int) -> Callable[[], None]:
    """Only what the paper's schedule adds, for `steps` steps, in one graph."""
    optimizer = SGD([nn.Parameter(torch.ones(1, device="cuda"))], lr=torch.tensor(0.1, device="cuda"), fused=True)
    loss = torch.tensor(2.3, device="cuda")
    add = adding(optimizer, paper_schedule(), loss)
    add()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # any synchronisation raises
    add()
    torch.cuda.set_sync_debug_mode("default")
    graph = captured(lambda: [add() for _ in range(steps)])

    def replay(keep: object = add) -> None:
        graph.replay()

    return replay


def on_gpu(copies: int = 3, steps: int = 100) -> dict[str, Any]:
    """Several copies of both training steps, since where a graph's buffers lie in memory changes its time a little."""
    calls, driven = {"alone": captured_schedule(steps)}, []
    kinds: dict[str, tuple[Law | None, float]] = {
        "plain": (None, 0.0),
        "driven": (paper_schedule(), 0.0),
        "default": (Default(), 0.0),
        "plain_momentum": (None, 0.9),
        "default_momentum": (Default(), 0.9),
    }
    for copy in range(copies):
        for kind, (law, momentum) in kinds.items():
            calls[f"{kind}{copy}"], lr = captured_training(law, momentum)
            driven += [lr] if law else []
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
        "added_to_training_step_us": with_lr - plain,
        "added_over_training_step": with_lr / plain - 1,
        "default_adds_us": means["default"] - plain,
        "default_adds_over_training_step": means["default"] / plain - 1,
        "default_momentum_adds_us": means["default_momentum"] - means["plain_momentum"],
        "default_momentum_adds_over_training_step": means["default_momentum"] / means["plain_momentum"] - 1,
        "alone_over_training_step": found["alone"] / steps / plain,
        "synchronisations": 0,  # captured_schedule raises on the first
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, help="write the numbers as JSON")
    out = arguments.parse_args().out
    record: dict[str, Any] = {"versions": versions(), "commit": commit(), "machine": platform.platform()}
    torch.set_num_threads(1)
    record["cpu"] = {"device": "CPU, 1 thread", **{name: on_cpu(name) for name in TRAININGS}}
    record["counts"] = {
        "sgd": counts(SGD),
        "momentum": counts(SGD, momentum=0.9),
        "adamw": counts(AdamW),
    }
    if torch.cuda.is_available():
        record["gpu"] = {"device": torch.cuda.get_device_name(), **on_gpu()}
    text = json.dumps(record, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
