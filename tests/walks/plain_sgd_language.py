"""An LSTM writes Python's manual, letter by letter: plain PyTorch, SGD, clipped gradients, a state that is carried on."""

import pydoc_data.topics

import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from mlrsnet import LearnedLR

STEPS, BATCH, LENGTH, LETTERS = 250, 32, 32, 128


def load():
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    codes = torch.tensor(list(text.encode("ascii", "ignore")))
    return codes[: -len(codes) // 10], codes[-len(codes) // 10 :]


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.lstm, self.head = nn.Embedding(LETTERS, 64), nn.LSTM(64, 96), nn.Linear(96, LETTERS)

    def forward(self, x, state=None):
        x, state = self.lstm(self.letters(x), state)
        return self.head(x), state


def train(schedule, seed):
    """The loss of the held-out text."""
    torch.manual_seed(seed)
    text, held_out = load()
    columns = text[: len(text) // BATCH * BATCH].view(BATCH, -1).T
    columns = columns[torch.randint(len(columns) - STEPS * LENGTH, ()) :]
    model, state = Writer(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    if schedule == "learned":
        lr = LearnedLR(optimizer, total_steps=STEPS)
    else:
        lr = OneCycleLR(optimizer, max_lr=1.0, total_steps=STEPS, pct_start=0.05, cycle_momentum=False)

    for step in range(STEPS):
        piece = columns[step * LENGTH : (step + 1) * LENGTH + 1]
        output, state = model(piece[:-1], state)
        state = tuple(one.detach() for one in state)
        loss = nn.functional.cross_entropy(output.flatten(0, 1), piece[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        if schedule == "learned":
            lr.step(loss)
        optimizer.step()
        if schedule == "cosine":
            lr.step()

    held_out = held_out[: len(held_out) // 64 * 64].view(64, -1).T
    with torch.no_grad():
        output, _ = model(held_out[:-1])
        return nn.functional.cross_entropy(output.flatten(0, 1), held_out[1:].flatten()).item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: loss {train(schedule, seed=0):.3f}")
