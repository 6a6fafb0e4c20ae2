"""The loss and LR of every step of an epoch."""

import torch
from torch import Tensor


class Trace:
    """Collects one epoch. On a GPU it writes to buffers there, which are read back once per epoch."""

    def __init__(self, steps: int, device: torch.device) -> None:
        self.buffers = torch.zeros(2, steps, dtype=torch.float32, device=device) if device.type == "cuda" else None
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses: list[float] = []
        self.lrs: list[float] = []

    def add(self, loss: Tensor, lr: float | Tensor) -> None:
        """Append one step."""
        if self.buffers is None:
            self.losses.append(float(loss))
            self.lrs.append(float(lr))
        else:
            lr = lr if isinstance(lr, Tensor) else torch.full((), lr, device=self.buffers.device)
            self.buffers.index_copy_(1, self.place, torch.stack((loss.float(), lr.float())).unsqueeze(1))
            self.place += 1

    def read(self) -> tuple[list[float], list[float]]:
        """Losses and LRs so far. Waits for the device."""
        if self.buffers is None:
            return self.losses, self.lrs
        losses, lrs = self.buffers[:, : int(self.place)].tolist()
        return losses, lrs

    def restore(self, losses: list[float], lrs: list[float]) -> None:
        """Continue after these steps."""
        self.losses, self.lrs = list(losses), list(lrs)
        if self.buffers is not None:
            self.buffers[:, : len(losses)] = torch.tensor([losses, lrs])
            self.place.fill_(len(losses))
