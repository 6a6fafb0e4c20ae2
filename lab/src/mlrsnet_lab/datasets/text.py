"""Texts as numbered tokens: words, with <eos> at the end of each line, or characters."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mlrsnet.files.untrusted import read_text
from mlrsnet_lab.datasets import sources, treebank
from mlrsnet_lab.datasets.options import FractionOptions, NoOptions
from mlrsnet_lab.files.archives import memory

MANUAL_WORDS, MANUAL_KINDS = 40_000, 1_000
"""How many words of Python's manual are read, and the size of their vocabulary."""

FILES = {"train": "train.txt", "val": "valid.txt", "test": "test.txt"}
EOS, UNKNOWN = "<eos>", "<unk>"
BYTES_PER_LETTER = 16
"""Of memory, while a text by characters is read: its bytes, itself and its numbers."""


@dataclass(frozen=True, eq=False)
class TextDataset:
    """Three texts as token numbers (int64, 1-D, on the CPU), and the vocabulary.

    digest: of its whole files (`sources.of_texts`).
    """

    name: str
    vocabulary: tuple[str, ...]
    train: Tensor
    val: Tensor
    test: Tensor
    note: str = ""
    digest: str = ""

    @property
    def num_classes(self) -> int:
        """The size of the vocabulary."""
        return len(self.vocabulary)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of tokens in each part."""
        return {part: len(tokens) for part, tokens in _parts(self).items()}


def load_words(name: str, root: Path, options: FractionOptions) -> TextDataset:
    """A text by words. The vocabulary is that of the training file, in order of first appearance."""
    texts = _read(root / name)
    words = {part: split_words(text) for part, text in texts.items()}
    return _cut(_numbered(name, words, root / name), texts, options)


def load_characters(name: str, root: Path, options: FractionOptions) -> TextDataset:
    """The same files by characters, line ends included."""
    folder = root / name.removesuffix("-chars")
    texts = _read(folder)
    return _cut(_numbered(name, texts, folder), texts, options)


def load_shakespeare(name: str, root: Path, options: FractionOptions) -> TextDataset:
    """One file by characters: the first 90% to train on, 5% to validate on, the last 5% to test on."""
    path = root / name / "input.txt"
    if not path.is_file():
        raise FileNotFoundError(f"{name} was not found: put one plain text file at {path}; {_BY_HAND}")
    text = _decode(path)
    ends = len(text) * 9 // 10, len(text) * 19 // 20
    parts = {"train": text[: ends[0]], "val": text[ends[0] : ends[1]], "test": text[ends[1] :]}
    return _cut(_numbered(name, parts, path), parts, options)


def load_manual(name: str, root: Path, options: NoOptions) -> TextDataset:
    """The beginning of Python's own reference manual, by words: small, and always available."""
    from pydoc_data.topics import topics

    words = " ".join(topics[key] for key in sorted(topics)).lower().split()[:MANUAL_WORDS]
    common = [word for word, _ in Counter(words).most_common(MANUAL_KINDS - 1)]
    index = {word: number for number, word in enumerate([UNKNOWN, *common])}
    numbers = torch.tensor([index.get(word, 0) for word in words])
    train, val, test = numbers.split(
        [len(numbers) * 8 // 10, len(numbers) // 10, len(numbers) - len(numbers) * 9 // 10]
    )
    note = f"the manual of Python {platform.python_version()}: other versions have another text"
    return TextDataset(name, tuple(index), train, val, test, note)


def split_words(text: str) -> list[str]:
    """Split on white space, with `<eos>` at the end of each line, also of a last line without a line end."""
    complete = text if text.endswith("\n") else text + "\n"
    return complete.replace("\n", f" {EOS} ").split()


def _cut(whole: TextDataset, texts: Mapping[str, str], options: FractionOptions) -> TextDataset:
    """The beginning of each part, with the digest of the whole texts."""
    text = replace(whole, digest=sources.of_texts(texts[part] for part in FILES))
    if options.fraction == 1:
        return text
    train, val, test = (tokens[: round(options.fraction * len(tokens))] for tokens in _parts(text).values())
    return replace(text, train=train, val=val, test=test, note=f"the first {100 * options.fraction:g} % of each part")


def _parts(text: TextDataset) -> dict[str, Tensor]:
    return {"train": text.train, "val": text.val, "test": text.test}


def _numbered(name: str, texts: Mapping[str, Sequence[str]], path: Path) -> TextDataset:
    """Words or characters as numbers. The vocabulary is that of the training part, in order of first appearance."""
    index = {token: number for number, token in enumerate(dict.fromkeys(texts["train"]))}
    train, val, test = (_look_up(texts[part], index, part, path) for part in FILES)
    return TextDataset(name, tuple(index), train, val, test)


def _look_up(tokens: Sequence[str], index: dict[str, int], part: str, path: Path) -> Tensor:
    if not tokens:
        raise ValueError(f"{path}: the {part} part must have at least one character, got none: use a longer text")
    fallback = index.get(UNKNOWN, -1)
    numbers = np.fromiter((index.get(token, fallback) for token in tokens), dtype=np.int64, count=len(tokens))
    if numbers.min() < 0:
        raise ValueError(
            f"{path}: every token of the {part} part must be among the training tokens, which have no {UNKNOWN}, got "
            f"{tokens[int(numbers.argmin())]!r}: add it to the training text or take it out"
        )
    return torch.from_numpy(numbers)


def _read(folder: Path) -> dict[str, str]:
    missing = [name for name in FILES.values() if not (folder / name).is_file()]
    if missing:
        looked = (
            f"{folder.name} was not found: put {', '.join(FILES.values())} into {folder}, plain text, one sentence or "
            f"paragraph per line (missing: {', '.join(missing)})"
        )
        if folder.name != "ptb":
            raise FileNotFoundError(f"{looked}; {_BY_HAND}")
        try:
            treebank.complete(folder, list(FILES.values()))
        except (FileNotFoundError, ValueError) as error:  # not those of a disk
            raise FileNotFoundError(f"{looked}; {error}") from None
    return {part: _decode(folder / name) for part, name in FILES.items()}


def _decode(path: Path) -> str:
    try:
        text = read_text(path, memory() // BYTES_PER_LETTER)
    except ValueError as error:
        raise ValueError(f"{path} must be UTF-8 text that fits into memory ({error}): convert it, or cut it") from None
    if not text:
        raise ValueError(f"{path} must have some text, got an empty file: copy it again")
    return text


_BY_HAND = "download it by hand, torchvision does not have it"
