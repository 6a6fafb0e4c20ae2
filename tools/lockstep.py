"""The core before it was rebuilt around sensors and today's, looking at the same trainings: their LRs for every step.

The old core (commit 239a254, with tensor LRs, so it measures every step and all entries) trains. Today's core only watches, with
float and with tensor LRs: it has its hooks on the same optimizer, and says the LR that it would write. A training parts from
another by itself, so the LRs of two trainings could not be compared step by step.

    git worktree add ../old 239a254
    python -m tools.lockstep ../old/src /data      # writes results/lockstep/lockstep.json

`/data` holds `tinyshakespeare/input.txt` and `ptb/train.txt`, plain or as `.xz`. A quarter of an hour on two CPU cores.

What differs on purpose:

- Of a matrix with more than 4,096 entries so many are looked at, at places that are drawn once; the old core looks at all. The
  same holds for the gradients of a first step, of plain SGD's limit, and for weights that begin too long.
- Where a matrix has momentum by torch's SGD, or none, the old core reads the step's length from the momentum buffer or from the
  gradient, exact for any LR. Today's compares weights. A step that is shorter than a weight's last digit can not be seen then:
  in float32 that is the first step where gradients are below about 1e-5 (`tiny`). The old core has that with all other optimizers.
- A step is counted in the mean when the next one begins, not when it ends. So `extend` and a plan that grows change the window of
  one step more.
- Momentum is read in every step, not when the groups change. A loss that is not finite counts as none, and the clock goes on; the
  old core holds everything. So these trainings have constant momentum and finite losses.
- The limit for plain SGD enters the mean (`larger of the two`) before limits and rounding, and is off in low precision only; the
  old core shortens an LR that was written, and is off under a GradScaler with a fused optimizer too.
- Weights are read where the optimizer has them in its first step; the old core reads them when it is made.
- Tensor LRs: progress, level and ratio are float64; the old core has float32 (1e-7, and 1e-7 T where progress nears 1).
- Frozen and integer weights are never read, nor counted as matrices of the network's depth.
"""

import argparse
import importlib
import json
import lzma
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

from mlrsnet import LearnedLR, _groups, sensors
from mlrsnet._driver import Driver, driver_of
from mlrsnet._numbers import Limits
from mlrsnet.card import versions
from mlrsnet.default import Default
from mlrsnet.law import Facts
from mlrsnet_lab.records.revision import commit

RECORD = Path(__file__).parents[1] / "results" / "lockstep" / "lockstep.json"
STEPS, NEAR = 250, 0.05
VOCABULARY, WORDS, WIDTH, EMBEDDING_STEPS = 5_000, 50_000, 512, 100
LR = 0.1
"""Of optimizers before the first step; it does not matter."""

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": SGD,
    "momentum": lambda weights, lr: SGD(weights, lr=lr, momentum=0.9),
    "Nesterov": lambda weights, lr: SGD(weights, lr=lr, momentum=0.9, nesterov=True),
    "AdamW": lambda weights, lr: AdamW(weights, lr=lr, weight_decay=0.1),
}


def load_old(source: Path) -> ModuleType:
    """The package of another checkout, beside the one that is imported already."""
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "mlrsnet"}
    for name in kept:
        del sys.modules[name]
    sys.path.insert(0, str(source.resolve()))
    try:
        old = importlib.import_module("mlrsnet")
        if not hasattr(importlib.import_module("mlrsnet.schedule"), "DEFAULT"):
            raise SystemExit(f"{source} must be the folder src of a checkout of 239a254, got {old.__file__}")
        return old
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if name.split(".")[0] == "mlrsnet"]:
            del sys.modules[name]
        sys.modules.update(kept)


class Onlooker(Driver):
    """Today's core on an optimizer that another one drives: it says its LRs, writes none, and measures by those that are there."""

    def __init__(self, optimizer: Optimizer, total_steps: int, *, on_device: bool) -> None:
        # LR tensors on a CPU are read by the host: this looks as if they were on a device.
        there = optimizer.param_groups[0]["lr"].device if on_device else None
        with mock.patch.object(_groups, "device_of", return_value=there):
            super().__init__(optimizer, Default(), Facts(), total_steps, Limits())
        self.said: list[float] = []
        optimizer.register_step_pre_hook(self.pre)
        optimizer.register_step_post_hook(self.post)

    def open(self, optimizer: Optimizer) -> None:
        """Say an LR, and leave those that were there."""
        there = [float(group["lr"]) for group in optimizer.param_groups]
        super().open(optimizer)
        self.said.append(float(self.numbers.lr))
        for group, lr in zip(optimizer.param_groups, there, strict=True):
            group["lr"].fill_(lr)
        lr = there[self.main]
        self.numbers.lr = torch.full_like(self.numbers.lr, lr) if isinstance(self.numbers.lr, Tensor) else lr


def compare(
    old: ModuleType, model: nn.Module, loss_of: Callable[[int], Tensor], kind: str, steps: int
) -> dict[str, Any]:
    """Train with the old core while today's looks on."""
    optimizer = OPTIMIZERS[kind](model.parameters(), lr=torch.tensor(LR))
    driver = old.LearnedLR(optimizer, "universal-2", total_steps=steps)
    lookers = [Onlooker(optimizer, steps, on_device=on_device) for on_device in (False, True)]
    lrs, losses, begin = [], [], time.perf_counter()
    for step in range(steps):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        driver.step(loss)
        for looker in lookers:
            looker.tell(loss.detach())
        optimizer.step()
        lrs.append(float(optimizer.param_groups[0]["lr"]))
        losses.append(float(loss.detach()))
    host, device = (np.array(looker.said) for looker in lookers)
    error = np.abs(np.log(host / np.array(lrs)))
    sizes = [weight.numel() for weight in model.parameters() if weight.ndim >= 2]
    return {
        "weights": sum(weight.numel() for weight in model.parameters()),
        "sampled": sum(size > sensors.ENTRIES for size in sizes) / len(sizes),
        "steps": steps,
        "losses": [float(np.mean(losses[:10])), float(np.mean(losses[-10:]))],
        "mean": float(error.mean()),
        "worst": float(error.max()),
        "worst_step": int(error.argmax()),
        "near": float((error < NEAR).mean()),
        "float_against_tensor": float(np.abs(device / host - 1).max()),
        "seconds": time.perf_counter() - begin,
    }


# Models and data


class Text(nn.Module):
    """A language model of tokens: a causal transformer of two blocks, or an LSTM."""

    def __init__(self, tokens: int, width: int, length: int, *, recurrent: bool = False) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.body: nn.Module = (
            nn.LSTM(width, width, batch_first=True)
            if recurrent
            else nn.TransformerEncoder(block, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        )
        self.out = nn.Linear(width, tokens)
        self.recurrent = recurrent
        if recurrent:
            del self.place

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the next tokens."""
        if self.recurrent:
            return self.out(self.body(self.embedding(x))[0])  # type: ignore[no-any-return]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        found = self.embedding(x) + self.place.weight[: x.shape[1]]
        return self.out(self.body(found, mask=mask, is_causal=True))  # type: ignore[no-any-return]


def cnn() -> nn.Module:
    """90,000 weights over pictures of 8 x 8."""
    parts: list[nn.Module] = []
    for a, b in ((1, 32), (32, 64), (64, 64)):
        parts += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        *parts,
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 34),
        nn.ReLU(),
        nn.Linear(34, 10),
    )


def mlp() -> nn.Module:
    """2,000 weights."""
    return nn.Sequential(nn.Linear(64, 26), nn.ReLU(), nn.Linear(26, 10))


def deep_mlp() -> nn.Module:
    """Six matrices without norms, two of them sampled."""
    hidden = [part for _ in range(4) for part in (nn.Linear(80, 80), nn.Tanh())]
    return nn.Sequential(nn.Linear(64, 80), nn.Tanh(), *hidden, nn.Linear(80, 10))


def digits(model: nn.Module, batch: int = 32) -> Callable[[int], Tensor]:
    """Losses on scikit-learn's digits."""
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x, rows = (x.float() - 4.9) / 6.0, torch.randint(len(x), (STEPS, batch), generator=torch.Generator().manual_seed(1))
    return lambda step: cross_entropy(model(x[rows[step]]), y[rows[step]])


def text(model: nn.Module, tokens: Tensor, batch: int = 16, length: int = 32) -> Callable[[int], Tensor]:
    """Losses on places of a text."""
    random = torch.Generator().manual_seed(1)
    starts = torch.randint(len(tokens) - length - 1, (STEPS, batch), generator=random)

    def loss_of(step: int) -> Tensor:
        rows = torch.stack([tokens[at : at + length + 1] for at in starts[step]])
        return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    return loss_of


def read(path: Path) -> str:
    """A text file, or the same packed."""
    packed = path.with_name(path.name + ".xz")
    return lzma.open(packed, "rt", encoding="utf-8").read() if packed.exists() else path.read_text(encoding="utf-8")


def tokens_of(parts: list[str], most: int) -> Tensor:
    """Their numbers, the most frequent first; all others are one."""
    places = {part: place for place, (part, _) in enumerate(Counter(parts).most_common(most - 1))}
    return torch.tensor([places.get(part, most - 1) for part in parts])


def tasks(data: Path) -> Iterator[tuple[str, str, nn.Module, Callable[[int], Tensor]]]:
    """Name, optimizer, model and losses."""
    for name, make in (("MLP", mlp), ("deep MLP", deep_mlp), ("CNN", cnn)):
        for kind in OPTIMIZERS:
            torch.manual_seed(0)
            yield name, kind, (model := make()), digits(model)
    letters = tokens_of(list(read(data / "tinyshakespeare" / "input.txt")), 65)
    words = tokens_of(read(data / "ptb" / "train.txt").replace("\n", " <eos> ").split(), VOCABULARY)
    for name, source, size, recurrent in (
        ("character transformer", letters, 65, False),
        ("word transformer", words, VOCABULARY, False),
        ("word LSTM", words, VOCABULARY, True),
    ):
        for kind in ("SGD", "momentum", "AdamW"):
            torch.manual_seed(0)
            yield name, kind, (model := Text(size, 64, 32, recurrent=recurrent)), text(model, source)


# A large embedding


class Bag(nn.Module):
    """The mean of the embeddings of some words, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.EmbeddingBag(WORDS, WIDTH), nn.Linear(WIDTH, 20)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of 20 classes."""
        return self.out(self.embedding(x))  # type: ignore[no-any-return]


def zipf(batch: int = 32, length: int = 64) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Bags of words as frequent as in a text: word n comes with a probability ~ 1 / n. Their classes are random."""
    random, chances = torch.Generator().manual_seed(1), 1 / torch.arange(1, WORDS + 1)
    words = torch.multinomial(chances, EMBEDDING_STEPS * batch * length, replacement=True, generator=random)
    bags = words.view(EMBEDDING_STEPS, batch, length)
    classes = torch.randint(20, (EMBEDDING_STEPS, batch), generator=random)
    return lambda step: (bags[step], classes[step])


def exact(weights: list[Tensor], before: list[Tensor], shrink: list[float], lr: float) -> float:
    """x from all entries."""
    moved = length = 0.0
    for weight, old, by in zip(weights, before, shrink, strict=True):
        share = sensors.count(weight.shape) ** 2
        moved += share * float((weight.double() - old.double()).square().sum()) / lr**2
        length += share * max(float(old.double().norm()) * by, sensors.shortest_length(weight.shape)) ** 2
    return moved / length


def sampled_embedding(kind: str) -> dict[str, Any]:
    """The running mean of |step| / |weights| as the sensor has it, one entry of 6,000, and from all entries."""
    torch.manual_seed(0)
    model, batch_of, begin = Bag(), zipf(), time.perf_counter()
    optimizer = OPTIMIZERS[kind](model.parameters(), lr=LR)
    lr = LearnedLR(optimizer, total_steps=EMBEDDING_STEPS)
    matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
    places = [place for place, weight in enumerate(model.parameters()) if weight.ndim >= 2]
    driver, means, errors = driver_of(optimizer), np.zeros(2), []
    assert driver is not None
    for step in range(EMBEDDING_STEPS):
        words, classes = batch_of(step)
        optimizer.zero_grad()
        cross_entropy(model(words), classes).backward()
        before = [weight.detach().clone() for weight in matrices]
        optimizer.step()
        driver.settle()
        shrink = [driver.sensor.known[place] for place in places]  # type: ignore[attr-defined]
        found = exact([weight.detach() for weight in matrices], before, shrink, float(lr.get_last_lr()[0]))
        keep = min(step / (step + 1), 1 - 10 / EMBEDDING_STEPS)
        means = keep * means + (1 - keep) * np.array([driver.sensor.x, found])
        errors.append(abs(0.5 * math.log(means[0] / means[1])))
    return {
        "weights": sum(weight.numel() for weight in model.parameters()),
        "steps": EMBEDDING_STEPS,
        "mean": float(np.mean(errors)),
        "worst": float(np.max(errors)),
        "seconds": time.perf_counter() - begin,
    }


def main() -> None:
    """Compare, and write the record after each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder src of a checkout of 239a254")
    parser.add_argument("data", type=Path, help="a folder with tinyshakespeare/input.txt and ptb/train.txt")
    parser.add_argument("--out", type=Path, default=RECORD)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    old = load_old(arguments.source)
    record: dict[str, Any] = {
        "old": "239a254",
        "commit": commit(),
        "versions": versions(),
        "trainings": {},
        "embedding": {},
    }
    for name, kind, model, loss_of in tasks(arguments.data):
        record["trainings"][f"{name}, {kind}"] = compare(old, model, loss_of, kind, STEPS)
        write(arguments.out, record)
    for kind in ("SGD", "AdamW"):
        record["embedding"][kind] = sampled_embedding(kind)
        write(arguments.out, record)


def write(path: Path, record: dict[str, Any]) -> None:
    """The record so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(
        *(f"{kind}: {list(found)[-1:]}" for kind, found in record.items() if kind in ("trainings", "embedding")),
        flush=True,
    )


if __name__ == "__main__":
    main()
