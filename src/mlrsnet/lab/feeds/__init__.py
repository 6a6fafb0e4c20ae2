"""Data where the training runs: batches that a CUDA graph can take by itself, and evaluation."""

import torch

from mlrsnet.lab.datasets import ImageDataset, ImageFolder, TextDataset
from mlrsnet.lab.feeds.base import Data, Feed, Score
from mlrsnet.lab.feeds.pictures import PictureData
from mlrsnet.lab.feeds.streamed import StreamedData
from mlrsnet.lab.feeds.text import TextData

__all__ = ["Data", "Feed", "Score", "open_data"]


def open_data(
    task: ImageDataset | TextDataset | ImageFolder, batch_size: int, length: int, seed: int, device: torch.device
) -> Data:
    """The data of a task on a device; `length` is that of text sequences."""
    if isinstance(task, TextDataset):
        return TextData(task, batch_size, length, device)
    if isinstance(task, ImageFolder):
        return StreamedData(task, batch_size, seed, device)
    return PictureData(task, batch_size, seed, device)
