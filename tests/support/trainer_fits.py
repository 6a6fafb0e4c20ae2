"""Small trainings of the Transformers Trainer: models made from a config, data, and what a run used."""

import torch
import transformers
from hand_loops import record
from transformers import TrainerCallback, TrainingArguments

transformers.logging.set_verbosity_error()
CLASSES, WORDS, LENGTH = 3, 32, 8
TINY = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def classifier(dropout=0.0, **attributes):
    """BERT with its own mean loss, although it takes keyword arguments. `accepts_loss_kwargs=False` says that it does not."""
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = transformers.BertConfig(**TINY, **dropouts, intermediate_size=16, num_labels=CLASSES)
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def writer(dropout=0.0):
    """GPT-2, whose loss is the sum over tokens divided by num_items_in_batch."""
    dropouts = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=1, n_head=2, n_positions=LENGTH, **dropouts)
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config)


def labelled(count=28):
    """Sequences with a class: their first word decides it."""
    inputs = torch.randint(WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(LENGTH, dtype=torch.long)
    return [{"input_ids": x, "attention_mask": mask, "labels": x[0] % CLASSES} for x in inputs]


def texts(count=28):
    """Sequences with very different numbers of labels, so the mean over tokens is not the mean of means."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(WORDS, (count, LENGTH), generator=generator)
    labels = inputs.clone()
    for row in range(count):
        labels[
            row, : int(torch.randint(1, LENGTH - 1, (), generator=generator))
        ] = -100  # no token predicts the first one
    return [{"input_ids": x, "labels": y} for x, y in zip(inputs, labels, strict=True)]


class Watch(TrainerCallback):
    """The LRs of every step that the optimizer really takes."""

    def __init__(self):
        self.lrs = []

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        record(optimizer.optimizer, self.lrs)


def settings(folder, **changes):
    given = {
        "output_dir": str(folder),
        "use_cpu": True,
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **changes,
    }
    return TrainingArguments(**given)


def logged(trainer, what="learning_rate"):
    return [entry[what] for entry in trainer.state.log_history if what in entry]


def same_weights(model, other):
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name
