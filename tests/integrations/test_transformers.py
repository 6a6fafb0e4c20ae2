"""A real Trainer and tiny transformers built from a config, on the CPU: your own `LearnedLR`, and `lr_scheduler_type="learned"`."""

import importlib
import inspect
import json
import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("accelerate")
pytest.importorskip("transformers")

import glue_like
from hand_loops import assert_ended
from torch.nn.functional import cross_entropy
from trainer_fits import (
    CLASSES,
    LENGTH,
    WORDS,
    Watch,
    classifier,
    labelled,
    logged,
    same_weights,
    settings,
    texts,
    writer,
)
from transformers import (
    SchedulerType,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    get_scheduler,
)
from transformers.trainer_pt_utils import LabelSmoother

from mlrsnet import LearnedLR
from mlrsnet.integrations import transformers as integration
from mlrsnet.integrations.transformers import register

register()
LEARNED = {"lr_scheduler_type": "learned"}


def by_name(model, folder, data, kwargs=None, callbacks=(), trainer=Trainer, **changes):
    """The Trainer makes the schedule. `kwargs` are those of `LearnedLR`."""
    arguments = settings(folder, **LEARNED, lr_scheduler_kwargs=kwargs, **changes)
    return trainer(model, arguments, train_dataset=data, callbacks=list(callbacks))


def brought(model, folder, data, kwargs=None, callbacks=(), lr=5e-5, **changes):
    """The user makes it, and counts the steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    accumulation = changes.get("gradient_accumulation_steps", 1)
    total_steps = changes.get("max_steps", 2 * -(-len(data) // (4 * accumulation)))
    learned = LearnedLR(optimizer, **{"total_steps": total_steps, **(kwargs or {})})
    arguments = settings(folder, **changes)
    return Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks), optimizers=(optimizer, learned))


def brought_tensor(*args, **options):
    return brought(*args, lr=torch.tensor(5e-5), **options)


@pytest.mark.parametrize("accumulation", [1, 3])  # 7 batches in an epoch: its last step has one of them
@pytest.mark.parametrize("make", [by_name, brought, brought_tensor])
def test_the_schedule_ends_with_the_training_and_the_log_shows_the_lr_of_each_step(tmp_path, make, accumulation):
    watch = Watch()
    trainer = make(writer(0.2), tmp_path, texts(), callbacks=[watch], gradient_accumulation_steps=accumulation)
    trainer.train()
    assert_ended(trainer.lr_scheduler, watch.lrs)
    assert logged(trainer) == [lrs[0] for lrs in watch.lrs]
    assert len(watch.lrs) == (14 if accumulation == 1 else 6)


@pytest.mark.parametrize(
    ("kwargs", "changes"),
    [
        (None, {"gradient_accumulation_steps": 3, "max_grad_norm": 0.1}),
        ({"scale": 0.5}, {"max_steps": 5, "bf16": True}),
    ],
)
def test_the_name_trains_as_your_own_schedule_does(tmp_path, kwargs, changes):
    own = brought(writer(0.2), tmp_path, texts(), kwargs, **changes)
    own.train()
    model = writer(0.2)
    arguments = settings(tmp_path, **LEARNED, lr_scheduler_kwargs=kwargs, **changes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    named = Trainer(model, arguments, train_dataset=texts(), optimizers=(optimizer, None))
    named.train()
    assert logged(named) == logged(own)
    same_weights(named.model, own.model)


def test_a_trainer_that_was_never_told_of_it_needs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "training_step", inspect.unwrap(Trainer.training_step))
    trainer = brought(classifier(), tmp_path, labelled(), callbacks=[watch := Watch()])
    trainer.train()
    assert_ended(trainer.lr_scheduler, watch.lrs)
    assert trainer.lr_scheduler.status()["level"] == 1.0  # no loss was read


def class_losses(logits, labels):
    return cross_entropy(logits, labels, reduction="sum"), len(labels)


def word_losses(logits, labels, smoothing=0.0):
    logits, labels = logits[:, :-1].reshape(-1, WORDS), labels[:, 1:].reshape(-1)
    total = cross_entropy(logits, labels, ignore_index=-100, reduction="sum", label_smoothing=smoothing)
    return total, int((labels != -100).sum())


def smooth_word_losses(logits, labels):
    return word_losses(logits, labels, smoothing=0.1)


def sum_over_count(outputs, labels, num_items_in_batch=None):
    total, count = word_losses(outputs.logits, labels)
    return total / (count if num_items_in_batch is None else num_items_in_batch)


class ByHand(TrainerCallback):
    """The mean loss of each whole batch, recomputed from the inputs that the model got since the last step."""

    def __init__(self, losses, examples):
        self.losses, self.shown, self.means = losses, [], []
        self.labels = {tuple(example["input_ids"].tolist()): example["labels"] for example in examples}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        model.register_forward_pre_hook(self.look, with_kwargs=True)

    def look(self, model, _, inputs):
        if model.training:
            self.shown.append(inputs["input_ids"])

    @torch.no_grad()
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        inputs, self.shown = torch.cat(self.shown), []
        labels = torch.stack([self.labels[tuple(row)] for row in inputs.tolist()])
        total, count = self.losses(model.eval()(inputs).logits, labels)
        self.means.append(float(total) / count)


def replayed(schedule, losses, total_steps):
    """The LRs that these losses give."""
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.AdamW([weight])
    lr, lrs = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=CLASSES), []
    for loss in losses:
        lr.step(loss)
        optimizer.step()
        lrs += lr.get_last_lr()
    return lrs


KINDS = {
    "divides by the count": (writer, texts, word_losses, {}, {}),
    "is not given a count": (lambda: classifier(accepts_loss_kwargs=False), labelled, class_losses, {}, {}),
    "own loss": (writer, texts, word_losses, {}, {"compute_loss_func": sum_over_count}),
}
if (
    "num_items_in_batch" in inspect.signature(LabelSmoother.__call__).parameters
):  # before 5.16 it returned a mean of means
    KINDS["label smoothing"] = (writer, texts, smooth_word_losses, {"label_smoothing_factor": 0.1}, {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_reads_the_mean_loss_of_the_whole_batch_also_of_the_last_short_one(horizon, tmp_path, kind):
    make, examples, losses, changes, options = KINDS[kind]
    data = examples()
    hand = ByHand(losses, data)
    kwargs = {"schedule": horizon, "num_classes": CLASSES}
    changes = {"gradient_accumulation_steps": 3, "eval_strategy": "steps", "eval_steps": 2, **changes}
    arguments = settings(tmp_path, **LEARNED, lr_scheduler_kwargs=kwargs, **changes)
    trainer = Trainer(make(), arguments, train_dataset=data, eval_dataset=data, callbacks=[hand], **options)
    trainer.train()
    assert len(hand.means) == 6
    torch.testing.assert_close(logged(trainer), replayed(horizon, hand.means, 6), rtol=1e-4, atol=0)


@pytest.mark.gpu
def test_fp16_counts_the_steps_that_were_taken(tmp_path):
    watch = Watch()
    trainer = by_name(classifier(), tmp_path, labelled(), callbacks=[watch], use_cpu=False, fp16=True)
    trainer.train()
    assert trainer.lr_scheduler.status()["step"] == len(watch.lrs) <= 14


@pytest.mark.parametrize("make", [writer, lambda dropout: classifier(dropout, accepts_loss_kwargs=False)])
def test_nothing_but_the_lr_changes(tmp_path, make):
    """With dropout, accumulation and clipping, an LR fixed at 0.01 gives the weights of a constant schedule."""
    constant = {"learning_rate": 0.01, "lr_scheduler_type": "constant"}
    held = {**LEARNED, "lr_scheduler_kwargs": {"min_lr": 0.01, "max_lr": 0.01}}
    trained = []
    for changes in (constant, held):
        arguments = settings(tmp_path, gradient_accumulation_steps=2, max_grad_norm=0.5, **changes)
        trainer = Trainer(make(0.3), arguments, train_dataset=texts() if make is writer else labelled())
        trainer.train()
        assert logged(trainer) == [0.01] * 8
        trained.append(trainer.model)
    same_weights(*trained)


@pytest.mark.parametrize(("make", "accumulation"), [(by_name, 3), (brought, 1), (brought_tensor, 1)])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, make, accumulation):
    changes = {"gradient_accumulation_steps": accumulation, "save_strategy": "steps", "save_steps": 2}
    whole, resumed = (make(writer(0.3), tmp_path, texts(), **changes) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert len(logged(whole)) == (14 if accumulation == 1 else 6)
    assert logged(resumed) == logged(whole)
    same_weights(whole.model, resumed.model)
    state = torch.load(tmp_path / "checkpoint-4" / "scheduler.pt", weights_only=True)
    assert state["steps"] == 4


@pytest.mark.filterwarnings(
    "ignore:the saved run had total_steps=4, which replaces 9"
)  # hidden from users by the Trainer
def test_a_run_that_is_resumed_with_more_steps_goes_on_to_their_end(tmp_path):
    by_name(classifier(), tmp_path, labelled(), max_steps=4, save_strategy="steps", save_steps=4).train()
    longer = by_name(classifier(), tmp_path, labelled(), max_steps=9)
    longer.train(resume_from_checkpoint=True)
    status = longer.lr_scheduler.status()
    assert (status["step"], status["total_steps"]) == (9, 9)
    assert logged(longer)[4] > 2 * logged(longer)[-1]


class Validate(TrainerCallback):
    """As in the guide: the schedule reads the loss of every evaluation."""

    def on_evaluate(self, args, state, control, metrics=None, lr_scheduler=None, **kwargs):
        lr_scheduler.validate(metrics["eval_loss"])


def test_a_validation_loss_that_does_not_fall_shortens_the_steps(tmp_path):
    changes = {**LEARNED, "lr_scheduler_kwargs": {"max_lr": 1e-9}, "eval_strategy": "steps", "eval_steps": 2}
    arguments = settings(tmp_path, **changes)
    trainer = Trainer(
        classifier(), arguments, train_dataset=labelled(), eval_dataset=labelled(8), callbacks=[Validate()]
    )
    trainer.evaluate = lambda *_, **__: trainer.callback_handler.on_evaluate(
        arguments, trainer.state, trainer.control, {"eval_loss": 1.0 + trainer.state.global_step}
    )
    with pytest.warns(UserWarning, match="nothing below its first loss"):
        trainer.train()
    assert trainer.lr_scheduler.status()["share"] == pytest.approx(0.01)  # seven evaluations


def test_training_twice_starts_twice_and_says_so(tmp_path):
    trainer = by_name(classifier(), tmp_path, labelled(), max_steps=3)
    trainer.train()
    first = trainer.lr_scheduler
    with pytest.warns(UserWarning, match="the optimizer has taken steps before") as caught:
        trainer.train()
    assert len(caught) == 1
    assert trainer.lr_scheduler is not first
    assert trainer.lr_scheduler.status()["step"] == 3


def test_other_trainers_keep_their_own_schedules(tmp_path):
    trainer = Trainer(classifier(), settings(tmp_path, max_steps=4), train_dataset=labelled())
    trainer.train()
    assert logged(trainer) == pytest.approx([5e-5, 3.75e-5, 2.5e-5, 1.25e-5])


def test_trainers_of_other_classes_know_the_name(tmp_path):
    arguments = Seq2SeqTrainingArguments(**{**settings(tmp_path, max_steps=3).to_dict(), **LEARNED, "report_to": []})
    trainer = Seq2SeqTrainer(writer(), arguments, train_dataset=texts())
    trainer.train()
    assert trainer.lr_scheduler.status()["level"] != 1.0  # it was told the losses, too


def test_a_tiny_transformer_learns(tmp_path):
    """Fine-tune on one sentence until the model knows it by heart."""
    data = [{"input_ids": torch.arange(LENGTH), "labels": torch.arange(LENGTH)}] * 16
    trainer = by_name(writer(), tmp_path, data, num_train_epochs=30, gradient_accumulation_steps=2)
    trainer.train()
    assert logged(trainer, "loss")[0] > 3.0 > 0.5 > logged(trainer, "loss")[-1]


def test_a_plain_loop_gets_a_schedule_from_get_scheduler():
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    lr = get_scheduler("learned", optimizer, num_warmup_steps=0, num_training_steps=10)
    assert isinstance(lr, LearnedLR)
    assert lr.total_steps == 10
    with pytest.warns(UserWarning, match="warm-up steps has no effect with the scheduler 'learned', got 3"):
        get_scheduler("learned", optimizer, num_warmup_steps=3, num_training_steps=10)


def test_registering_twice_leaves_one_name_and_tells_each_loss_once(tmp_path):
    before = Trainer.training_step
    register()
    assert Trainer.training_step is before
    assert [str(kind.value) for kind in SchedulerType].count("learned") == 1
    assert SchedulerType("learned") is SchedulerType["LEARNED"]
    with pytest.raises(ValueError, match="'learned'"):  # the list of names that are known
        SchedulerType("lernd")


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"max_rl": 0.1}, TypeError, "max_rl"),
        ({"scale": -1}, ValueError, "scale must be > 0, got -1"),
        ({"schedule": "cifar10-resnet18"}, ValueError, "num_classes must be given for the schedule 'cifar10-resnet18'"),
    ],
)
def test_mistakes_in_lr_scheduler_kwargs_are_named_before_the_first_step(tmp_path, kwargs, error, message):
    watch = Watch()
    with pytest.raises(error, match=message):
        by_name(classifier(), tmp_path, labelled(), kwargs, [watch]).train()
    assert not watch.lrs


def command_line(folder):
    quick = "--use_cpu --no_count --report_to none --disable_tqdm true --logging_steps 1 --dataloader_pin_memory false"
    return [*quick.split(), "--output_dir", folder, "--per_device_train_batch_size", "4", "--max_steps", "6"]


def test_a_script_that_knows_nothing_of_it_takes_the_name_on_its_command_line(tmp_path):
    words = [glue_like.__file__, *command_line(tmp_path), "--lr_scheduler_type", "learned"]
    words = [sys.executable, "-m", integration.__name__, *map(str, words), "--lr_scheduler_kwargs", '{"scale": 0.5}']
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.strip().splitlines()[-1])
    trainer = by_name(classifier(accepts_loss_kwargs=False), tmp_path, labelled(), {"scale": 0.5}, max_steps=6)
    trainer.train()
    assert found["lrs"] == logged(trainer)


@pytest.mark.parametrize("words", [[], ["no_such_script.py"]])
def test_a_script_that_is_not_there_is_answered_with_the_usage(words):
    with pytest.raises(SystemExit, match=f"SCRIPT must be a Python file, got {words[0] if words else 'none'}"):
        integration.main(words)


def test_without_transformers_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ImportError, match=r"needs transformers and accelerate .* pip install 'mlrsnet\[transformers\]'"
    ):
        importlib.reload(integration)
