"""Scales of the law on larger networks: ResNet-18 with SGD, and a GPT of ten million weights with AdamW; on a GPU.

python -m lab.studies.law.on_gpu FOLDER resnet|gpt OUT.json
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

import mlrsnet
from lab.studies.law import data, nets

SCALES = (0.5, 1.0, 2.0, 4.0)
LRS = {"resnet": (0.03, 0.1, 0.3), "gpt": (3e-4, 1e-3, 3e-3)}
STEPS = {"resnet": 30 * (10_000 // 128), "gpt": 1500}
BATCH, LENGTH, WARMUP = {"resnet": 128, "gpt": 64}, 128, 0.05


def resnet() -> nn.Module:
    """torchvision's, with the usual stem for small pictures."""
    from torchvision.models import resnet18

    model = resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return model


def moved(x: Tensor) -> Tensor:
    """Pictures shifted by at most two places, half of them mirrored: the whole batch by the same."""
    dx, dy, mirror = [*torch.randint(5, (2,)).tolist(), bool(torch.rand(()) < 0.5)]
    x = functional.pad(x, (2, 2, 2, 2))[:, :, dx : dx + x.shape[2], dy : dy + x.shape[3]]
    return x.flip(3) if mirror else x


def run(kind: str, folder: Path, seed: int, scale: float | None, lr: float | None) -> dict[str, Any]:
    """One training: the default at a scale, or a cosine from an LR."""
    torch.manual_seed(seed)
    if kind == "resnet":
        x, y = (part.cuda() for part in data.pictures(folder, "cifar"))
        model = resnet().cuda()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=lr or 0.1, momentum=0.9, weight_decay=5e-4)
        batches = [index for _ in range(30) for index in torch.randperm(10_000, device="cuda").split(128)[:-1]]
    else:
        text, symbols = data.text(folder, "shakespeare")
        text, model = text.cuda(), nets.gpt(symbols, LENGTH, 384, 6, "gpt2").cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr or 1e-3, weight_decay=0.1)
        batches = list(torch.randint(700_000, (STEPS[kind], 64), device="cuda"))

    def loss_of(index: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            if kind == "resnet":
                return functional.cross_entropy(model(moved(x[index])).float(), y[index])
            pieces = text[index[:, None] + torch.arange(LENGTH + 1, device="cuda")]
            return functional.cross_entropy(model(pieces[:, :-1]).float().flatten(0, 1), pieces[:, 1:].flatten())

    steps = len(batches)
    known: dict[str, Any] = {"batch_size": BATCH[kind], "model": model}
    learned = mlrsnet.LearnedLR(optimizer, total_steps=steps, scale=scale, **known) if scale else None
    decay = None if scale else LambdaLR(optimizer, _cosine(steps))
    begin = time.perf_counter()
    for index in batches:
        optimizer.zero_grad()
        loss = loss_of(index)
        loss.backward()
        if kind == "gpt":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if learned is not None:
            learned.step(loss.detach())
        optimizer.step()
        if decay is not None:
            decay.step()
    model.eval()
    with torch.no_grad():
        if kind == "resnet":
            wrong = sum(
                int((model(part).argmax(1) != answer).sum())
                for part, answer in zip(x[10_000:].split(500), y[10_000:].split(500), strict=True)
            )
            error = wrong / 2000
        else:
            held = torch.arange(700_000, 790_000, LENGTH, device="cuda")
            error = float(torch.stack([loss_of(part) for part in held.split(64)[:-1]]).mean())
    peak = float(learned.history.max()) if learned is not None else lr
    return {
        "seed": seed,
        "scale": scale,
        "lr": lr,
        "error": error,
        "peak_lr": peak,
        "seconds": time.perf_counter() - begin,
    }


def _cosine(steps: int) -> Callable[[int], float]:
    def share(step: int) -> float:
        warm = min(1.0, (step + 1) / (WARMUP * steps))
        return warm * 0.5 * (1 + float(torch.cos(torch.tensor(step / steps * torch.pi))))

    return share


def main() -> None:
    """Every seed under every scale and LR; written after each run."""
    folder, kind, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    found = []
    for seed in (0, 1):
        for scale, lr in [(scale, None) for scale in SCALES] + [(None, lr) for lr in LRS[kind]]:
            found.append(run(kind, folder, seed, scale, lr))
            record = {
                "kind": kind,
                "steps": STEPS[kind],
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "runs": found,
            }
            out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
