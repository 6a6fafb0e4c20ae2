"""The examples of all kinds, as small files in one folder, which can travel to a machine that has no other data.

mnist, fashion      pictures of 28 x 28
cifar10             halved to 16 x 16
cifar100            the same, of its first twenty classes
china               a photograph that comes with scikit-learn, as 128 x 128
penn                words of Penn Treebank
wikipedia           characters of WikiText-2
words               words of WikiText-2 and of Shakespeare, numbered alike
base                a language model of these words of WikiText-2, from which adapters begin
snippets            texts of four sources: words, and the source
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lab.studies.law import nets
from lab.studies.law.families import trained, written
from mlrsnet_lab import datasets
from mlrsnet_lab.datasets import packages
from mlrsnet_lab.datasets.snippets import KINDS, SNIPPETS, WORD
from mlrsnet_lab.files.archives import read_tar_members

Array = np.ndarray[Any, Any]

MOST = {"mnist": 9000, "fashion": 5000, "cifar10": 2600, "cifar100": 4500}
CLASSES = 20
"""Of CIFAR-100: with all 100, a small network would hardly learn."""

SIDE = 128
WORDS, TOKENS, CHARACTERS = 3000, 200_000, 600_000
"""Different words, the others being 0, and how many of a text are taken; characters."""

SYMBOLS = 96
"""Printable ASCII, and 0 for all others."""

LENGTH, BASE_WIDTH, BASE_DEPTH, BASE_STEPS = 32, 64, 2, 1500
FEATURES, TEXTS, LONGEST, SHORTEST = 1000, 600, 40, 8
"""Of the graph: words that are known, texts of each source, words of a text."""

NEIGHBOURS = 8


def prepare(folder: Path, root: Path | None = None) -> None:
    """Write the files, from the lab's data in `root`."""
    folder.mkdir(parents=True, exist_ok=True)
    root = datasets.data_root(root)
    for name, make in MAKERS.items():
        _save(folder / f"{name}.npz", make(root))
    _save(folder / "base.npz", _base(folder))


def base_model() -> nn.Module:
    """The language model from which adapters begin, before it is trained."""
    return nets.gpt(WORDS, LENGTH, BASE_WIDTH, BASE_DEPTH, "gpt2")


@cache
def arrays(folder: Path, name: str) -> dict[str, Array]:
    """A file."""
    with np.load(folder / f"{name}.npz") as kept:
        return dict(kept)


@cache
def pictures(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """(N, channels, side, side) from 0 to 1, and classes."""
    kept = arrays(folder, name)
    x = torch.from_numpy(kept["x"]).float() / 255
    return (x.unsqueeze(1) if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()), torch.from_numpy(kept["y"]).long()


@cache
def text(folder: Path, name: str, part: str = "x") -> Tensor:
    """Numbers of words or characters."""
    return torch.from_numpy(arrays(folder, name)[part]).long()


def pieces(numbers: Tensor, length: int) -> Tensor:
    """(pieces, length) of a text, in an order that is the same for everybody."""
    cut = numbers[: len(numbers) // length * length].view(-1, length)
    return cut[torch.randperm(len(cut), generator=torch.Generator().manual_seed(0))]


@cache
def graph(folder: Path) -> tuple[Tensor, Tensor, Tensor]:
    """For each text: which words it has, the texts whose words are most like its own and itself, and its source."""
    kept = arrays(folder, "snippets")
    words, source = torch.from_numpy(kept["x"]).long(), torch.from_numpy(kept["y"]).long()
    has = torch.zeros(len(words), FEATURES).scatter_(1, words, 1.0)
    has[:, 0] = 0
    rare = has * (len(has) / has.sum(0).clamp(min=1)).log()
    rare = nn.functional.normalize(rare, dim=1)
    alike = (rare @ rare.T).fill_diagonal_(2.0)
    order = torch.randperm(len(has), generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    near = alike.topk(NEIGHBOURS + 1).indices
    return nn.functional.normalize(has, p=1.0, dim=1)[order], place[near][order], source[order]


def _save(path: Path, made: dict[str, Array]) -> None:
    np.savez_compressed(path, **made)  # type: ignore[arg-type] # numpy's stub mistakes names for its options


def _pictures(root: Path, known: str, name: str) -> dict[str, Array]:
    with np.load(root / f"{known}.npz") as kept:
        x, y = kept["x_train"], kept["y_train"].astype(np.uint8)
    if name == "cifar100":
        x, y = x[y < CLASSES], y[y < CLASSES]
    x, y = x[: MOST[name]], y[: MOST[name]]
    if x.ndim == 4:
        x = x.reshape(len(x), 16, 2, 16, 2, 3).mean((2, 4)).round().astype(np.uint8)
    return {"x": x, "y": y}


def _china(root: Path) -> dict[str, Array]:
    from sklearn.datasets import load_sample_image

    side = 3 * SIDE
    picture = load_sample_image("china.jpg")[:side, :side].reshape(SIDE, 3, SIDE, 3, 3)
    return {"x": picture.mean((1, 3)).round().astype(np.uint8)}


def _penn(root: Path) -> dict[str, Array]:
    words = (root / "ptb" / "train.txt").read_text().replace("\n", " <eos> ").split()[:TOKENS]
    return {"x": _numbers(words, _commonest(words))}


def _characters(root: Path) -> dict[str, Array]:
    found = np.frombuffer((root / "wikitext2" / "train.txt").read_bytes()[:CHARACTERS], np.uint8).astype(int) - 31
    return {"x": np.where((found > 0) & (found < SYMBOLS), found, 0).astype(np.uint8)}


def _words(root: Path) -> dict[str, Array]:
    texts = {
        name: WORD.findall((root / path).read_text().lower().replace("<unk>", " "))[:TOKENS]
        for name, path in (("wikipedia", "wikitext2/train.txt"), ("shakespeare", "tinyshakespeare/input.txt"))
    }
    number = _commonest([word for words in texts.values() for word in words])
    return {name: _numbers(words, number) for name, words in texts.items()}


def _snippets(root: Path) -> dict[str, Array]:
    texts = packages.parsed(SNIPPETS, root, _by_source)
    number = _commonest((word for words, _ in texts for word in words), FEATURES)
    x = np.zeros((len(texts), LONGEST), np.int16)
    for row, (words, _) in zip(x, texts, strict=True):
        row[: len(words[:LONGEST])] = _numbers(words[:LONGEST], number)
    return {"x": x, "y": np.array([source for _, source in texts], np.uint8)}


def _by_source(path: Path) -> list[tuple[list[str], int]]:
    """Words of some texts of each source, evenly spaced, and its number."""
    found = []
    names = [f"hutto_ICWSM_2014/{kind}_GroundTruth.txt" for kind in KINDS]
    for source, file in enumerate(read_tar_members(path, names)):
        lines = (line.split("\t")[-1].lower() for line in re.split(r"\r?\n", file.decode(errors="replace")))
        texts = [words for line in lines if len(words := WORD.findall(line)) >= SHORTEST]
        found += [(words, source) for words in texts[:: len(texts) // TEXTS][:TEXTS]]
    return found


def _base(folder: Path) -> dict[str, Array]:
    """In half precision, so that the file is small; everybody begins from the same."""
    torch.set_num_threads(1)
    task = written(base_model, text(folder, "words", "wikipedia"), LENGTH)
    return {name: value.half().numpy() for name, value in trained(base_model, task, BASE_STEPS).items()}


def _commonest(words: Iterable[str], most: int = WORDS) -> dict[str, int]:
    return {word: place for place, (word, _) in enumerate(Counter(words).most_common(most - 1), 1)}


def _numbers(words: Iterable[str], number: dict[str, int]) -> Array:
    return np.array([number.get(word, 0) for word in words], np.int16)


MAKERS: dict[str, Callable[[Path], dict[str, Array]]] = {
    "mnist": partial(_pictures, known="mnist", name="mnist"),
    "fashion": partial(_pictures, known="fashion_mnist", name="fashion"),
    "cifar10": partial(_pictures, known="cifar10", name="cifar10"),
    "cifar100": partial(_pictures, known="cifar100", name="cifar100"),
    "china": _china,
    "penn": _penn,
    "wikipedia": _characters,
    "words": _words,
    "snippets": _snippets,
}
"""The files, by name, in the order in which they are made; base comes after them."""
