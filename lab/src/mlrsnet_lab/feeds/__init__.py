"""DeviceData on the training's device: batches that a CUDA graph can draw by itself, and evaluation."""

import torch

from mlrsnet_lab.datasets import Dataset, ExampleDataset, ImageFolder, TextDataset
from mlrsnet_lab.feeds.base import DeviceData, Feed, Score
from mlrsnet_lab.feeds.examples import ExampleData
from mlrsnet_lab.feeds.pictures import PictureData
from mlrsnet_lab.feeds.streamed import StreamedData
from mlrsnet_lab.feeds.text import TextData
from mlrsnet_lab.processes import ALONE, Processes

__all__ = ["DeviceData", "Feed", "Score", "open_data"]


def open_data(
    dataset: Dataset, batch_size: int, length: int, seed: int, device: torch.device, processes: Processes = ALONE
) -> DeviceData:
    """A dataset on a device; `length` is that of text sequences. `batch_size` is that of all processes together."""
    processes.check_batch(batch_size)
    if isinstance(dataset, TextDataset):
        return TextData(dataset, batch_size, length, device, processes)
    if isinstance(dataset, ImageFolder):
        return StreamedData(dataset, batch_size, seed, device, processes)
    if isinstance(dataset, ExampleDataset):
        return ExampleData(dataset, batch_size, seed, device, processes)
    return PictureData(dataset, batch_size, seed, device, processes)
