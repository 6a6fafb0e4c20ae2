"""DeviceData on the training's device: batches that a CUDA graph can draw by itself, and evaluation."""

import torch

from mlrsnet.lab.datasets import Dataset, ExampleDataset, ImageFolder, TextDataset
from mlrsnet.lab.feeds.base import DeviceData, Feed, Score
from mlrsnet.lab.feeds.examples import ExampleData
from mlrsnet.lab.feeds.pictures import PictureData
from mlrsnet.lab.feeds.streamed import StreamedData
from mlrsnet.lab.feeds.text import TextData

__all__ = ["DeviceData", "Feed", "Score", "open_data"]


def open_data(dataset: Dataset, batch_size: int, length: int, seed: int, device: torch.device) -> DeviceData:
    """A dataset on a device; `length` is that of text sequences."""
    if isinstance(dataset, TextDataset):
        return TextData(dataset, batch_size, length, device)
    if isinstance(dataset, ImageFolder):
        return StreamedData(dataset, batch_size, seed, device)
    if isinstance(dataset, ExampleDataset):
        return ExampleData(dataset, batch_size, seed, device)
    return PictureData(dataset, batch_size, seed, device)
