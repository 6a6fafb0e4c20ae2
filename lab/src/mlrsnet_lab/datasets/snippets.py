"""Pieces of text with a class: is a review, an editorial or a tweet kind or unkind? 20 people rated each."""

import re
from collections import Counter
from pathlib import Path

import torch

from mlrsnet_lab.datasets import packages
from mlrsnet_lab.datasets.examples import ExampleDataset, Examples, Parts, chosen, split
from mlrsnet_lab.datasets.options import FractionOptions
from mlrsnet_lab.datasets.packages import Packaged
from mlrsnet_lab.datasets.tables import source
from mlrsnet_lab.files.archives import read_tar_members

SNIPPETS = Packaged(
    "vaderSentiment",
    "3.3.2",
    "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz",
    "d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa",
    "sentences of film reviews, shop reviews, editorials and tweets with their ratings (Hutto and Gilbert 2014)",
    "MIT",
    "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
)
KINDS = ("movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets", "tweets")
LENGTH, WORDS = 40, 8000
"""Tokens of a piece, and size of the vocabulary with its first two."""

PAD, UNKNOWN = 0, 1
WORD = re.compile(r"[a-z']+|[0-9]+|[^\sa-z0-9]")


def load(name: str, root: Path, options: FractionOptions) -> ExampleDataset:
    """Words of lower case; the commonest of the training texts are the vocabulary. Class 1: the mean rating is above 0."""
    pieces = packages.parsed(SNIPPETS, root, _read)
    places = Examples(torch.arange(len(pieces)).unsqueeze(1), torch.tensor([kind for _, kind in pieces]))
    parts = chosen(split(places), options)
    counts = Counter(word for place in parts.train.inputs.flatten().tolist() for word in pieces[place][0])
    number = {word: place for place, (word, _) in enumerate(counts.most_common(WORDS - 2), 2)}
    made = Parts(
        *(
            Examples(_tokens([pieces[place][0] for place in part.inputs.flatten().tolist()], number), part.targets)
            for part in parts
        )
    )
    return ExampleDataset(name, *made, num_classes=2, vocabulary=len(number) + 2, note=source(SNIPPETS))


def _read(path: Path) -> list[tuple[list[str], int]]:
    """Words and class of every piece: number, mean rating and text, separated by tabs."""
    pieces = []
    for file in read_tar_members(path, (f"hutto_ICWSM_2014/{kind}_GroundTruth.txt" for kind in KINDS)):
        for line in file.decode("utf-8", errors="replace").splitlines():
            fields = line.split("\t")
            if len(fields) == 3 and (words := WORD.findall(fields[2].lower())):
                pieces.append((words, int(float(fields[1]) > 0)))
    return pieces


def _tokens(texts: list[list[str]], number: dict[str, int]) -> torch.Tensor:
    found = torch.full((len(texts), LENGTH), PAD)
    for row, words in zip(found, texts, strict=True):
        numbers = [number.get(word, UNKNOWN) for word in words[:LENGTH]]
        row[: len(numbers)] = torch.tensor(numbers)
    return found
