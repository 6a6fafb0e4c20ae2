"""A small GPT-2 from nothing learns Python's manual, letter by letter: the Trainer of Transformers, its AdamW."""

import pydoc_data.topics
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from mlrsnet.integrations.transformers import register

register()

LENGTH, PIECES = 48, 3200


def load():
    """Pieces to learn from, and 256 others."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    codes = torch.tensor(list(text.encode("ascii", "ignore")))
    pieces = codes[: len(codes) // LENGTH * LENGTH].view(-1, LENGTH)
    pieces = pieces[torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))][: PIECES + 256]
    data = [{"input_ids": piece, "labels": piece} for piece in pieces]
    return data[:PIECES], data[PIECES:]


def train(schedule, seed):
    """The loss of the held-out text."""
    set_seed(seed)
    learn, held_out = load()
    config = GPT2Config(
        vocab_size=128, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    decay = {"learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 10}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            seed=seed,
            num_train_epochs=1,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            weight_decay=0.1,
            **({"lr_scheduler_type": "learned"} if schedule == "learned" else decay),
            use_cpu=True,
            dataloader_pin_memory=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=learn, eval_dataset=held_out)
        trainer.train()
        return trainer.evaluate()["eval_loss"]


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: loss {train(schedule, seed=0):.3f}")
