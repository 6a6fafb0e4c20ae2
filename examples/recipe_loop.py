"""A loop in the style of a language-model recipe: loss per token over micro-batches, clipping."""

import torch
from torch.nn.functional import cross_entropy

import mlrsnet

EPOCHS, UPDATES, ACCUMULATE, WORDS, LENGTH = 10, 8, 4, 50, 16


class Writer(torch.nn.Module):
    """A small causal transformer."""

    def __init__(self, width=32):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, width), torch.nn.Embedding(LENGTH, width)
        self.block = torch.nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.out = torch.nn.Linear(width, WORDS)
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens):
        """Logits of the next token at every place."""
        x = self.words(tokens) + self.places(torch.arange(LENGTH))
        return self.out(self.block(x, src_mask=self.mask, is_causal=True))


def micro_batch():
    """Sequences that count on from a random word. Those of different length are padded, and -100 is not predicted."""
    text = (torch.randint(WORDS, (8, 1)) + torch.arange(LENGTH + 1)) % WORDS
    labels = text[:, 1:].clone()
    labels[torch.arange(LENGTH) >= torch.randint(4, LENGTH + 1, (8, 1))] = -100
    return text[:, :-1], labels


torch.manual_seed(0)
model = Writer()
optimizer = torch.optim.AdamW(model.parameters())
lr_scheduler = mlrsnet.LearnedLR(optimizer, total_steps=EPOCHS * UPDATES)

for epoch in range(EPOCHS):
    for _ in range(UPDATES):
        running_loss, num_tokens = 0.0, 0
        for _ in range(ACCUMULATE):
            tokens, labels = micro_batch()
            loss = cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            loss.backward()
            running_loss, num_tokens = running_loss + loss.detach(), num_tokens + int((labels != -100).sum())
        for weight in model.parameters():
            weight.grad /= num_tokens
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        lr_scheduler.step(running_loss / num_tokens)
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: loss {running_loss / num_tokens:.3f}, LR {lr_scheduler.get_last_lr()[0]:.5f}")
