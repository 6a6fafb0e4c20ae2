"""A small GPT writes Python's manual, letter by letter: plain PyTorch, AdamW with groups, clipping and betas of its own."""

import pydoc_data.topics

import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from mlrsnet import LearnedLR

STEPS, BATCH, LENGTH, WIDTH, LETTERS = 200, 16, 48, 64, 128


def load():
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    codes = torch.tensor(list(text.encode("ascii", "ignore")))
    return codes[: -len(codes) // 10], codes[-len(codes) // 10 :]


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, x):
        x = self.letters(x) + self.places.weight
        return self.head(self.norm(self.blocks(x, mask=self.mask, is_causal=True)))


def batch(codes, size=BATCH):
    starts = torch.randint(len(codes) - LENGTH, (size, 1))
    pieces = codes[starts + torch.arange(LENGTH + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def train(schedule, seed):
    """The loss of the held-out text."""
    torch.manual_seed(seed)
    text, held_out = load()
    model = GPT()
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    if schedule == "learned":
        lr = LearnedLR(optimizer, total_steps=STEPS)
    else:
        lr = OneCycleLR(optimizer, max_lr=1e-3, total_steps=STEPS, pct_start=0.05, cycle_momentum=False)

    for _ in range(STEPS):
        loss = loss_of(model, *batch(text))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if schedule == "learned":
            lr.step(loss)
        optimizer.step()
        if schedule == "cosine":
            lr.step()

    torch.manual_seed(0)
    with torch.no_grad():
        return loss_of(model.eval(), *batch(held_out, 256)).item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: loss {train(schedule, seed=0):.3f}")
