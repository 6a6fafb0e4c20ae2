"""Text as columns of tokens on the device, read in windows. The model's memory carries over from window to window."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mlrsnet_lab.datasets import TextDataset
from mlrsnet_lab.feeds.base import PERPLEXITY, DeviceData, Feed, Metric, Score, require_batch
from mlrsnet_lab.processes import ALONE, Processes


class TextFeed(Feed):
    """The text in `batch_size` columns. A step reads the next `length` rows and predicts the row after each."""

    def __init__(
        self,
        tokens: Tensor,
        batch_size: int,
        length: int,
        device: torch.device,
        part: str,
        processes: Processes = ALONE,
    ) -> None:
        self.columns = in_columns(tokens, batch_size)[:, processes.share(batch_size)].contiguous().to(device)
        self.steps = (len(self.columns) - 1) // length
        require_batch(part, self.steps, batch_size, f"{len(tokens)} tokens in sequences of {length}")
        self.length, self.device = length, device
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.rows = torch.arange(length, device=device)
        self.memory: tuple[Tensor, ...] | None = None

    def begin(self, epoch: int) -> None:
        """Every epoch starts at the beginning of the text, with an empty memory."""
        self.cursor.zero_()
        for tensor in self.memory or ():
            tensor.zero_()

    def loss(self, model: Any) -> Tensor:
        """See `Feed`."""
        if self.memory is None:
            language_model = getattr(model, "module", model)  # DDP keeps it there
            self.memory = language_model.initial_state(self.columns.shape[1], self.device)
        rows = self.cursor + self.rows
        inputs, targets = self.columns.index_select(0, rows), self.columns.index_select(0, rows + 1)
        self.cursor += self.length
        before = tuple(tensor.clone() for tensor in self.memory)  # backward() reads it after the copy below
        logits, memory = model(inputs, before)
        for kept, new in zip(self.memory, memory, strict=True):
            kept.copy_(new.detach())
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    def state_dict(self) -> dict[str, Any]:
        """See `Feed`."""
        return {**super().state_dict(), "memory": None if self.memory is None else [t.cpu() for t in self.memory]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Feed`."""
        super().load_state_dict(state)
        self.cursor.fill_(self.position % self.steps * self.length)
        if state["memory"] is not None:
            self.memory = tuple(tensor.to(self.device) for tensor in state["memory"])


class TextData(DeviceData):
    """A text on a device. Its batches are in the order of the text, so they have no seed; `length` is that of a window."""

    def __init__(
        self, dataset: TextDataset, batch_size: int, length: int, device: torch.device, processes: Processes = ALONE
    ) -> None:
        self.length = length
        super().__init__(dataset, batch_size, 0, device, processes)
        parts = {"train": dataset.train[: len(dataset.test)], "val": dataset.val, "test": dataset.test}
        self.parts = {name: tokens.to(device) for name, tokens in parts.items()}

    @property
    def metric(self) -> Metric:
        """See `DeviceData`."""
        return PERPLEXITY

    def feed(self, part: str, batch_size: int, seed: int) -> TextFeed:
        """See `DeviceData`. Every part has as many columns."""
        tokens: Tensor = getattr(self.dataset, part)
        return TextFeed(tokens, self.batch_size, self.length, self.device, part, self.processes)

    @torch.no_grad()
    def evaluate(self, model: Any, part: str) -> Score:
        """See `DeviceData`. Uses columns as in training, and leaves out the last tokens if they fill no row."""
        everyone = in_columns(self.parts[part], min(self.batch_size, len(self.parts[part]) // 2))
        columns = everyone[:, self.processes.every]
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        rows = len(columns) if columns.numel() else 0
        memory = model.initial_state(columns.shape[1], self.device) if rows else ()
        for begin in range(0, rows - 1, self.length):
            window = columns[begin : begin + self.length + 1]
            logits, memory = model(window[:-1], memory)
            total += cross_entropy(logits.flatten(0, 1).float(), window[1:].flatten(), reduction="sum")
        loss = float(self.processes.total(total)) / everyone[1:].numel()
        return Score(loss, perplexity(loss))


def perplexity(loss: float) -> float:
    """exp(loss), infinite where a float cannot hold it."""
    return math.exp(loss) if loss < 700 else math.inf


def in_columns(tokens: Tensor, count: int) -> Tensor:
    """Cut the text into B pieces of equal length, side by side: (T, B)."""
    length = len(tokens) // count
    return tokens[: length * count].view(count, length).t().contiguous()
