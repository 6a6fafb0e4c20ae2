"""What the lab's loop costs, as ratios measured in one run.

GPU: seconds per epoch of ResNet-18 on CIFAR-10 at batch 128 without evaluation, under cosine, under a learned schedule
and in meta-training (T_val = 100), beside a plain eager loop: torchvision's transforms in a DataLoader, `CosineAnnealingLR`
on the host. Target on an H200: 1.2 s; a learned schedule within 1 % of cosine; 3 times faster than the plain loop.

CPU: an epoch of the small CNN on digits against a bare loop over tensors in memory. Target: 1.3 times.

    python benchmarks/loop.py [--data FOLDER] [--out results/loop/cpu.json]
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset

from mlrsnet import Schedule
from mlrsnet.card import versions
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import datasets, records
from mlrsnet_lab.devices import device_name, reproducible
from mlrsnet_lab.models import build_image
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

EPOCHS = 1000  # a horizon that no loop below reaches
WORKERS = min(8, os.cpu_count() or 1)


def interleaved(epochs: dict[str, Callable[[], Any]], rounds: int, wait: Callable[[], None]) -> dict[str, float]:
    """Median seconds of each epoch, timed in turns so that a busy machine disturbs all alike."""
    timings: dict[str, list[float]] = {name: [] for name in epochs}
    for turn in range(rounds + 1):
        for name, epoch in epochs.items():
            wait()
            begin = time.perf_counter()
            epoch()
            wait()
            if turn:  # the first one warms up
                timings[name].append(time.perf_counter() - begin)
    return {name: median(values) for name, values in timings.items()}


def lab_epoch(stepper: Stepper) -> Callable[[], None]:
    def epoch() -> None:
        for _ in range(stepper.steps_per_epoch):
            stepper.step()
        stepper.trace.read()
        stepper.trace.restore([], [])

    return epoch


def on_cpu(rounds: int) -> dict[str, float]:
    device = torch.device("cpu")
    with reproducible(device, False):
        stepper = Stepper(RunSpec(task="digits", model="small_cnn", epochs=EPOCHS), device)
        found = interleaved({"lab": lab_epoch(stepper), "bare": bare_epoch()}, rounds, lambda: None)
    return {"lab_s": found["lab"], "bare_s": found["bare"], "lab_over_bare": found["lab"] / found["bare"]}


def bare_epoch() -> Callable[[], None]:
    """A loop written by hand, with the data in memory."""
    task = datasets.load("digits")
    images = (task.train.images.permute(0, 3, 1, 2).float() - task.mean[0]) / task.std[0]
    images, labels = images.contiguous(), task.train.labels
    model = build_image("small_cnn", task.shape, task.num_classes)
    optimizer = SGD(model.parameters(), lr=0.1, weight_decay=5e-4)
    scheduler = CosineAnnealingLR(optimizer, EPOCHS * (len(labels) // 64))

    def epoch() -> None:
        losses = []
        for batch in torch.randperm(len(labels)).split(64):
            if len(batch) == 64:
                loss = cross_entropy(model(images[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.item())

    return epoch


def on_gpu(root: Path | None, rounds: int) -> dict[str, float]:
    device = torch.device("cuda", 0)
    file = Path(tempfile.mkdtemp()) / "paper.safetensors"
    torch.manual_seed(0)
    Schedule([LSTMNet() for _ in range(3)]).save(file)
    schedules: dict[str, dict[str, Any]] = {
        "cosine": {"schedule": "cosine"},
        "learned": {"schedule": "learned", "schedule_options": {"schedule": str(file), "scale": 0.1}},
        "meta_training": {"schedule": "mlr-snet", "schedule_options": {"every": 100}},
    }
    with reproducible(device, False):
        base = {"task": "cifar10", "model": "resnet18", "epochs": EPOCHS, "batch_size": 128}
        steppers = {name: Stepper(RunSpec(**base, **one), device, root) for name, one in schedules.items()}
        epochs = {name: lab_epoch(stepper) for name, stepper in steppers.items()}
        lab = interleaved(epochs, rounds, torch.cuda.synchronize)
        plain_step = in_a_row(steppers["meta_training"], due=False)
        meta_step = in_a_row(steppers["meta_training"], due=True)
    task = datasets.load("cifar10", root=root)
    loops = {"eager_fp32": eager_epoch(task, False), "eager_bf16": eager_epoch(task, True)}
    plain = interleaved(loops, max(2, rounds // 2), torch.cuda.synchronize)
    fastest = min(plain.values())
    return {
        "steps_per_epoch": steppers["cosine"].steps_per_epoch,
        **{f"{name}_s": value for name, value in (lab | plain).items()},
        "learned_over_cosine": lab["learned"] / lab["cosine"],
        "meta_training_over_cosine": lab["meta_training"] / lab["cosine"],
        "meta_step_over_plain_step": meta_step / plain_step,
        "eager_fp32_over_cosine": plain["eager_fp32"] / lab["cosine"],
        "eager_bf16_over_cosine": plain["eager_bf16"] / lab["cosine"],
        "fastest_eager_over_cosine": fastest / lab["cosine"],
    }


def in_a_row(stepper: Stepper, due: bool) -> float:
    """Median seconds of single steps, with and without a meta-update."""
    timings = []
    while len(timings) < 5:
        if stepper.step_count % stepper.steps_per_epoch == 0:
            stepper.trace.restore([], [])
        wanted = stepper.method.is_due() == due
        torch.cuda.synchronize()
        begin = time.perf_counter()
        stepper.step()
        torch.cuda.synchronize()
        if wanted:
            timings.append(time.perf_counter() - begin)
    return median(timings)


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """A map-style dataset with torchvision's usual transforms."""

    def __init__(self, task: datasets.ImageDataset) -> None:
        from torchvision import transforms

        self.images, self.labels = task.train.images.numpy(), task.train.labels.tolist()
        mean, std = ([value / 255 for value in values] for values in (task.mean, task.std))
        steps = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.transform = transforms.Compose([*steps, transforms.Normalize(mean, std)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def eager_epoch(task: datasets.ImageDataset, bf16: bool) -> Callable[[], None]:
    """The plain loop: only the mean loss of an epoch is read back from the device."""
    loader = DataLoader(
        Pictures(task), 128, shuffle=True, num_workers=WORKERS, pin_memory=True, drop_last=True, persistent_workers=True
    )
    model = build_image("resnet18", task.shape, task.num_classes).cuda()
    optimizer = SGD(model.parameters(), lr=0.1, weight_decay=5e-4)
    scheduler = CosineAnnealingLR(optimizer, EPOCHS * len(loader))

    def epoch() -> None:
        total = torch.zeros((), device="cuda")
        for images, labels in loader:
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        total.item()

    return epoch


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", type=Path)
    words.add_argument("--rounds", type=int, default=15)
    words.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    on_cuda = given.device == "cuda" or (given.device == "auto" and torch.cuda.is_available())
    found = on_gpu(given.data, given.rounds) if on_cuda else on_cpu(given.rounds)
    record = {
        "benchmark": "loop",
        "machine": {"system": platform.platform(), "device": device_name(torch.device("cuda" if on_cuda else "cpu"))},
        "versions": versions(),
        "commit": records.commit(),
        "gpu" if on_cuda else "cpu": found,
    }
    text = json.dumps(record, indent=1)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
