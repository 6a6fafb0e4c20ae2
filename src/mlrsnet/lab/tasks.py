"""The old place of `mlrsnet.lab.datasets`."""

from mlrsnet._deprecated import renamed
from mlrsnet.lab import datasets

__getattr__ = renamed(__name__, {"load": ("mlrsnet.lab.datasets.load", datasets.load)})
