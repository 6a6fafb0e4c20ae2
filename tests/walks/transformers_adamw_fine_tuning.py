"""From which file is this piece of Python? A small BERT that tells six files apart learns three others: the Trainer, AdamW.

The cosine has 3e-4, the largest of the LRs that BERT's authors tried for models this small.
"""

import argparse
import ast
import copy
import difflib
import doctest
import inspect
import pdb
import pickle
import re
import tempfile
import typing
import zipfile
import zlib
from functools import cache

import torch
from sklearn.model_selection import train_test_split
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from mlrsnet.integrations.transformers import register

register()

LENGTH, EACH, VOCABULARY = 24, 300, 1000
FIRST, THEN = (argparse, ast, difflib, doctest, pdb, pickle), (inspect, typing, zipfile)


def load(modules):
    """`EACH` pieces of every file, with its number."""
    random, data = torch.Generator().manual_seed(0), []
    for label, module in enumerate(modules):
        words = re.findall(r"\w+", inspect.getsource(module))
        codes = torch.tensor([zlib.crc32(word.encode()) % VOCABULARY for word in words])
        for start in torch.randint(len(codes) - LENGTH, (EACH,), generator=random).tolist():
            piece = codes[start : start + LENGTH]
            data.append({"input_ids": piece, "attention_mask": torch.ones_like(piece), "labels": torch.tensor(label)})
    return data


def fit(model, data, schedule, learning_rate, epochs, seed):
    decay = {"learning_rate": learning_rate, "lr_scheduler_type": "cosine", "warmup_steps": 10}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            seed=seed,
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            weight_decay=0.01,
            **({"lr_scheduler_type": "learned"} if schedule == "learned" else decay),
            use_cpu=True,
            dataloader_pin_memory=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=data).train()


@cache
def pretrained():
    """As it might come from the Hub."""
    set_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        num_labels=len(FIRST),
    )
    model = BertForSequenceClassification(config)
    fit(model, load(FIRST), "cosine", 1e-3, 3, seed=0)
    return model


def train(schedule, seed):
    """The share of wrong test pieces, in percent."""
    model = copy.deepcopy(pretrained())
    set_seed(seed)
    model.num_labels = model.config.num_labels = len(THEN)
    model.classifier = torch.nn.Linear(64, len(THEN))
    learn, test = train_test_split(load(THEN), train_size=0.5, random_state=seed)
    fit(model, learn, schedule, 3e-4, 6, seed)
    x, y = torch.stack([one["input_ids"] for one in test]), torch.stack([one["labels"] for one in test])
    with torch.no_grad():
        return 100 * (model.eval()(x).logits.argmax(1) != y).float().mean().item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: {train(schedule, seed=0):.1f} % wrong")
