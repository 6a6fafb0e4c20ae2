"""A real Trainer and tiny transformers built from a config, on the CPU. Run as a script, this file is one rank of two."""

import inspect
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, Schedule

pytest.importorskip("accelerate")
pytest.importorskip("transformers")

from accelerate.scheduler import AcceleratedScheduler
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
from transformers import Trainer, TrainerCallback
from transformers.trainer_pt_utils import LabelSmoother

from mlrsnet.integrations.transformers import LearnedLRCallback

IGNORES_THE_COUNT = pytest.mark.filterwarnings("ignore:the loss ignores num_items_in_batch:UserWarning")


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


def mean_of_its_own(outputs, labels, num_items_in_batch=None):
    return cross_entropy(outputs.logits, labels)


class ByHand(TrainerCallback):
    """Sum and number of each batch's losses, recomputed from the inputs that the model got since the last step."""

    def __init__(self, losses, examples):
        self.losses, self.shown, self.totals = losses, [], []
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
        self.totals.append([float(total), count])


def alone(model, arguments, schedule, data, total_steps=None, **options):
    """The callback alone."""
    callback = LearnedLRCallback(schedule, total_steps, CLASSES)
    return Trainer(model, arguments, train_dataset=data, callbacks=[callback, *options.pop("callbacks", [])], **options)


def brought(model, arguments, schedule, data, total_steps=None, lr=5e-5, **options):
    """The user's own LearnedLR, and the callback."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    lr = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=CLASSES)
    callbacks = [LearnedLRCallback(), *options.pop("callbacks", [])]
    return Trainer(model, arguments, train_dataset=data, callbacks=callbacks, optimizers=(optimizer, lr), **options)


def brought_tensor(*args, **options):
    """The same with a tensor LR, which stays on its device."""
    return brought(*args, lr=torch.tensor(5e-5), **options)


def replayed(schedule, losses, total_steps, initial_lr=5e-5):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=initial_lr)
    lr, lrs = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=CLASSES), []
    for loss in losses:
        lr.step(loss)
        lrs.append(float(lr.get_last_lr()[0]))
    return lrs


KINDS = {
    "divides by the count": (writer, texts, word_losses, {}, {}),
    "ignores the count": (classifier, labelled, class_losses, {}, {}),
    "is not given a count": (lambda: classifier(accepts_loss_kwargs=False), labelled, class_losses, {}, {}),
    "own loss": (writer, texts, word_losses, {}, {"compute_loss_func": sum_over_count}),
    "own mean loss": (classifier, labelled, class_losses, {}, {"compute_loss_func": mean_of_its_own}),
}
if (
    "num_items_in_batch" in inspect.signature(LabelSmoother.__call__).parameters
):  # before 5.16 it returned a mean of means
    KINDS["label smoothing"] = (writer, texts, smooth_word_losses, {"label_smoothing_factor": 0.1}, {})


@IGNORES_THE_COUNT
@pytest.mark.parametrize("kind", KINDS)
def test_the_schedule_reads_the_mean_loss_of_the_whole_batch_also_of_the_last_short_one(horizon, tmp_path, kind):
    make, examples, losses, arguments, options = KINDS[kind]
    data, watch = examples(), Watch()
    hand = ByHand(losses, data)
    arguments = settings(tmp_path, gradient_accumulation_steps=3, eval_strategy="steps", eval_steps=2, **arguments)
    trainer = alone(make(), arguments, horizon, data, callbacks=[hand, watch], eval_dataset=data, **options)
    trainer.train()
    means = [total / count for total, count in hand.totals]
    assert len(means) == 6
    torch.testing.assert_close(watch.losses, means, rtol=2e-5, atol=0)
    torch.testing.assert_close(logged(trainer), replayed(horizon, means, 6), rtol=1e-4, atol=0)


def test_the_loss_of_every_evaluation_reaches_the_schedule_if_it_is_monitored(horizon, tmp_path, monkeypatch):
    trainer = monitored(horizon, tmp_path, "eval_loss", labelled(8))
    seen, validate = [], LearnedLR.validate
    monkeypatch.setattr(LearnedLR, "validate", lambda lr, loss: seen.append(loss) or validate(lr, loss))
    trainer.train()
    assert seen == logged(trainer, "eval_loss")
    assert len(seen) == 7


def monitored(horizon, tmp_path, monitor, eval_dataset, **arguments):
    callback = LearnedLRCallback(horizon, num_classes=CLASSES, monitor=monitor)
    arguments = settings(tmp_path, **{"eval_strategy": "steps", "eval_steps": 2, **arguments})
    return Trainer(classifier(), arguments, train_dataset=labelled(), eval_dataset=eval_dataset, callbacks=[callback])


def test_one_of_several_data_sets_can_be_monitored(horizon, tmp_path):
    trainer = monitored(horizon, tmp_path, "eval_b_loss", {"a": labelled(4), "b": labelled(8)})
    trainer.train()
    assert trainer.lr_scheduler.engine.validation.lowest == min(logged(trainer, "eval_b_loss"))


def test_evaluations_after_the_training_are_not_read(horizon, tmp_path):
    trainer = monitored(horizon, tmp_path, "eval_loss", labelled(8))
    trainer.train()
    seen = replace(trainer.lr_scheduler.engine.validation)
    trainer.evaluate(labelled(12))
    trainer.evaluate(labelled(12), metric_key_prefix="test")
    assert trainer.lr_scheduler.engine.validation == seen


def test_a_metric_that_no_evaluation_has_is_told_with_those_that_it_has(horizon, tmp_path):
    trainer = monitored(horizon, tmp_path, "val_loss", labelled(8))
    with pytest.raises(ValueError, match=r"monitor must be a metric of the evaluation, got 'val_loss', .*'eval_loss'"):
        trainer.train()


def test_a_monitor_with_nothing_to_read_is_told_before_the_training(horizon, tmp_path):
    trainer = monitored(horizon, tmp_path, "eval_loss", labelled(8), eval_strategy="no")
    with pytest.raises(ValueError, match="eval_strategy must be 'epoch' or 'steps' with monitor='eval_loss'"):
        trainer.train()


def test_a_relative_range_does_not_mind_scaled_gradients(tmp_path):
    found = []
    for scale in (None, 256.0):
        trainer = alone(classifier(), settings(tmp_path, max_grad_norm=0.0), "universal-relative", labelled())
        if scale is not None:
            trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        trainer.train()
        found.append(logged(trainer))
    torch.testing.assert_close(*found, rtol=1e-3, atol=0)


@pytest.mark.parametrize("policy", ["relative", "measured"])
def test_ranges_by_the_steps_work_in_the_trainer_with_its_clipping(tmp_path, policy):
    schedule = Schedule(LSTMNet(10), Card(gamma=Gamma(policy, value=0.1)))
    trainer = alone(classifier(), settings(tmp_path, max_grad_norm=0.05), schedule, labelled())
    trainer.train()
    lrs = logged(trainer)
    assert len(lrs) > 2
    assert all(0 < value < 1 for value in lrs)


def test_a_loss_that_ignores_the_trainers_count_is_told_with_what_to_do(horizon, tmp_path):
    trainer = alone(classifier(), settings(tmp_path, gradient_accumulation_steps=3), horizon, labelled())
    with pytest.warns(UserWarning, match=r"gradients are 3 times .* Set model.accepts_loss_kwargs = False") as caught:
        trainer.train()
    assert len(caught) == 1


def test_a_loss_that_says_how_it_is_scaled_is_believed(horizon, tmp_path):
    class MeanTrainer(Trainer):
        loss_is_scaled_for_ga = False  # read by transformers 5.22 and later

    data, watch, arguments = labelled(), Watch(), settings(tmp_path, gradient_accumulation_steps=3)
    if not hasattr(Trainer, "loss_is_scaled_for_ga"):
        pytest.skip("this version of transformers has no such attribute")
    hand = ByHand(class_losses, data)
    callbacks = [LearnedLRCallback(horizon, num_classes=CLASSES), hand, watch]
    MeanTrainer(classifier(), arguments, train_dataset=data, callbacks=callbacks).train()
    torch.testing.assert_close(watch.losses, [total / count for total, count in hand.totals], rtol=2e-5, atol=0)


@pytest.mark.parametrize("make", [alone, brought, brought_tensor])
def test_the_lr_in_the_logs_is_the_one_the_optimizer_used(horizon, tmp_path, make):
    watch = Watch()
    trainer = make(classifier(), settings(tmp_path), horizon, labelled(), 14, callbacks=[watch])
    trainer.train()
    assert logged(trainer) == [lrs[0] for lrs in watch.lrs]
    assert len(set(logged(trainer))) == 14
    initial_lr = torch.tensor(5e-5) if make is brought_tensor else 5e-5  # the same engine gives the same bits
    assert logged(trainer) == replayed(horizon, watch.losses, 14, initial_lr)


@IGNORES_THE_COUNT
@pytest.mark.parametrize("make", [writer, classifier])
def test_nothing_but_the_lr_changes(horizon, tmp_path, make):
    """With dropout, accumulation and clipping, an LR fixed at 0.01 gives the weights of a constant schedule."""
    data = texts() if make is writer else labelled()
    arguments = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5}
    held = LearnedLRCallback(horizon, num_classes=CLASSES, min_lr=0.01, max_lr=0.01)
    constant = {"learning_rate": 0.01, "lr_scheduler_type": "constant"}
    trained = []
    for more, callbacks in ((constant, []), ({}, [held])):
        trainer = Trainer(
            make(dropout=0.3), settings(tmp_path, **arguments, **more), train_dataset=data, callbacks=callbacks
        )
        trainer.train()
        assert logged(trainer) == [0.01] * 8
        trained.append(trainer.model)
    same_weights(*trained)


@IGNORES_THE_COUNT
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("make", [alone, brought, brought_tensor])
def test_a_resumed_run_is_the_uninterrupted_one(horizon, tmp_path, make, accumulation):
    steps = 14 if accumulation == 1 else 6
    arguments = settings(tmp_path, gradient_accumulation_steps=accumulation, save_strategy="steps", save_steps=2)
    whole = make(classifier(dropout=0.3), arguments, horizon, labelled(), steps)
    whole.train()
    resumed = make(classifier(dropout=0.3), arguments, horizon, labelled(), steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert len(logged(whole)) == steps
    assert logged(resumed) == logged(whole)
    same_weights(whole.model, resumed.model)
    state = torch.load(tmp_path / "checkpoint-4" / "scheduler.pt", weights_only=True)
    assert (state["last_epoch"], state["total_steps"]) == (4, steps)


@pytest.mark.filterwarnings(
    "ignore:the saved run had total_steps:UserWarning"
)  # the Trainer hides this warning from users
def test_a_run_resumed_with_more_steps_goes_on_to_the_new_horizon(horizon, tmp_path):
    first = alone(classifier(), settings(tmp_path, max_steps=4, save_strategy="steps"), horizon, labelled())
    first.train()
    longer = alone(classifier(), settings(tmp_path, max_steps=9), horizon, labelled(), callbacks=[watch := Watch()])
    longer.train(resume_from_checkpoint=True)
    assert longer.lr_scheduler.total_steps == 9
    lr = LearnedLR(torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]), horizon, total_steps=4, num_classes=CLASSES)
    for loss in logged(first, "loss"):
        lr.step(loss)
    lr.extend(9)
    for loss, used in zip(watch.losses, logged(longer)[4:], strict=True):
        lr.step(loss)
        assert used == pytest.approx(lr.get_last_lr()[0], rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "given", "horizon_is"),
    [({"max_steps": 3}, None, 3), ({"num_train_epochs": 1.5}, None, 11), ({"max_steps": 3}, 50, 50)],
)
def test_the_horizon_is_the_trainers_unless_the_user_says_another(horizon, tmp_path, arguments, given, horizon_is):
    trainer = alone(classifier(), settings(tmp_path, **arguments), horizon, labelled(), given)
    trainer.train()
    assert trainer.lr_scheduler.total_steps == horizon_is


def test_every_training_starts_a_new_schedule(horizon, tmp_path):
    trainer = alone(classifier(), settings(tmp_path, max_steps=3), horizon, labelled())
    trainer.train()
    first = trainer.lr_scheduler
    trainer.train()
    assert trainer.lr_scheduler is not first
    assert trainer.lr_scheduler.status()["step"] == 3


def test_a_tiny_transformer_learns(horizon, tmp_path):
    """Fine-tune on one sentence until the model knows it by heart."""
    data = [{"input_ids": torch.arange(LENGTH), "labels": torch.arange(LENGTH)}] * 16
    trainer = Trainer(
        writer(),
        settings(tmp_path, num_train_epochs=30, gradient_accumulation_steps=2),
        train_dataset=data,
        callbacks=[LearnedLRCallback(horizon, num_classes=WORDS, scale=3.0)],
    )
    trainer.train()
    assert logged(trainer, "loss")[0] > 3.0 > 0.5 > logged(trainer, "loss")[-1]


def test_bf16_losses_are_read(horizon, tmp_path):
    watch = Watch()
    trainer = alone(classifier(), settings(tmp_path, bf16=True), horizon, labelled(), callbacks=[watch])
    trainer.train()
    torch.testing.assert_close(logged(trainer), replayed(horizon, watch.losses, 14), rtol=1e-6, atol=0)
    torch.testing.assert_close(watch.losses, logged(trainer, "loss"), rtol=1e-3, atol=0)


@pytest.mark.gpu
def test_fp16_losses_are_read_without_their_scale(horizon, tmp_path):
    watch = Watch()
    arguments = settings(tmp_path, use_cpu=False, fp16=True)
    trainer = alone(classifier(), arguments, horizon, labelled(), callbacks=[watch])
    trainer.train()
    assert max(watch.losses) < 3.0
    torch.testing.assert_close(logged(trainer), replayed(horizon, watch.losses, 14), rtol=1e-6, atol=0)


def test_groups_keep_their_ratios(horizon, tmp_path):
    model, watch = classifier(), Watch()
    head = list(model.classifier.parameters())
    optimizer = torch.optim.AdamW([{"params": model.bert.parameters()}, {"params": head, "lr": 1e-3}], lr=1e-4)
    callbacks = [LearnedLRCallback(horizon, num_classes=CLASSES), watch]
    arguments = settings(tmp_path, max_steps=3)
    Trainer(model, arguments, train_dataset=labelled(), callbacks=callbacks, optimizers=(optimizer, None)).train()
    assert [head / body for body, head in watch.lrs] == pytest.approx([10.0] * 3)


def test_accelerates_own_steps_change_nothing(horizon):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    lr = LearnedLR(optimizer, horizon, total_steps=3, num_classes=CLASSES)
    lr.step(1.0)
    before, wrapped = lr.state_dict(), AcceleratedScheduler(lr, [], step_with_optimizer=False)
    for _ in range(5):
        wrapped.step()
    assert wrapped.get_last_lr() == [before["lr"]]
    assert wrapped.state_dict()["step"] == wrapped.state_dict()["last_epoch"] == 1


def test_attach_joins_a_trainer_that_exists(horizon, tmp_path):
    arguments = settings(tmp_path, max_steps=3)
    late = Trainer(classifier(), arguments, train_dataset=labelled())
    LearnedLRCallback(horizon, num_classes=CLASSES).attach(late)
    early = alone(classifier(), arguments, horizon, labelled())
    late.train()
    early.train()
    assert logged(late) == logged(early)


def test_a_callback_added_too_late_says_how_to_join(horizon, tmp_path):
    trainer = Trainer(classifier(), settings(tmp_path), train_dataset=labelled())
    trainer.add_callback(LearnedLRCallback(horizon, num_classes=CLASSES))
    with pytest.raises(RuntimeError, match=r"callbacks=\[\.\.\.\]\), or call attach\(trainer\)"):
        trainer.train()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": -1}, "scale must be > 0, got -1"),
        ({"schedule": "nope"}, "there is no schedule named 'nope'"),
        ({"schedule": "cifar10-resnet18"}, "num_classes must be given for the schedule 'cifar10-resnet18'"),
        ({"total_steps": 0}, "total_steps must be a whole number >= 1, got 0"),
        ({"on_nonfinite": "x"}, "on_nonfinite must be one of hold, raise; got 'x'"),
    ],
)
def test_a_bad_argument_is_named_before_a_trainer_is_made(options, message):
    with pytest.raises(ValueError, match=message):
        LearnedLRCallback(**options)


def test_combinations_that_cannot_be_meant_are_refused(horizon, tmp_path):
    model, data, arguments = classifier(), labelled(), settings(tmp_path)
    optimizer, another = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    linear = torch.optim.lr_scheduler.LinearLR(optimizer)
    lr = LearnedLR(optimizer, horizon, total_steps=14, num_classes=CLASSES)

    def make(callback, optimizers=(None, None)):
        return Trainer(model, arguments, train_dataset=data, callbacks=[callback], optimizers=optimizers)

    with pytest.raises(TypeError, match=r"got LinearLR: pass optimizers=\(optimizer, None\)"):
        make(LearnedLRCallback(horizon), (optimizer, linear))
    with pytest.raises(ValueError, match=r"got num_classes=3, max_lr=0.1: pass LearnedLRCallback\(\)"):
        make(LearnedLRCallback(num_classes=3, max_lr=0.1), (optimizer, lr))
    with pytest.raises(ValueError, match=r"another SGD: pass optimizers=\(optimizer, LearnedLR\(optimizer"):
        make(LearnedLRCallback(), (another, lr)).train()
    with pytest.raises(TypeError, match="max_rl"):
        LearnedLRCallback(max_rl=0.1)
    used = LearnedLRCallback(horizon)
    make(used)
    with pytest.raises(RuntimeError, match="make a new callback for every Trainer"):
        make(used)
    plain = Trainer(model, arguments, train_dataset=data)
    LearnedLRCallback(horizon).attach(plain)
    with pytest.raises(RuntimeError, match="one LearnedLRCallback"):
        LearnedLRCallback(horizon).attach(plain)
    plain = Trainer(model, arguments, train_dataset=data)
    plain.is_deepspeed_enabled = True
    with pytest.raises(ValueError, match="deepspeed must be off"):
        LearnedLRCallback(horizon).attach(plain)


def test_a_horizon_that_is_not_the_trainers_is_told(horizon, tmp_path):
    trainer = brought(classifier(), settings(tmp_path, max_steps=3), horizon, labelled(), 30)
    with pytest.warns(UserWarning, match="should be 3, the steps that the Trainer takes, got 30 .* total_steps=3"):
        trainer.train()


def test_a_training_without_an_end_is_left_as_it_is(horizon, tmp_path):
    trainer = brought(classifier(), settings(tmp_path, max_steps=3), horizon, labelled(), None)
    trainer.train()  # a warning would be an error
    assert not trainer.lr_scheduler.has_end


def test_a_checkpoint_of_another_schedule_is_refused(horizon, paper, tmp_path):
    arguments = settings(tmp_path, max_steps=4, save_strategy="steps", save_steps=2)
    alone(classifier(), arguments, paper, labelled()).train()
    with pytest.raises(ValueError, match="another schedule"):
        alone(classifier(), arguments, horizon, labelled()).train(resume_from_checkpoint=True)


def test_a_trainer_whose_loss_is_not_seen_is_refused(horizon, tmp_path):
    trainer = alone(classifier(), settings(tmp_path), horizon, labelled())
    del trainer.training_step
    with pytest.raises(RuntimeError, match=r"do not replace trainer\.training_step"):
        trainer.train()


def test_without_transformers_the_message_says_what_to_install():
    code = "import sys\nsys.modules['transformers'] = None\nimport mlrsnet.integrations.transformers"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith("pip install 'mlrsnet[transformers]'")


RANKED = {
    "divides by the count": (writer, texts, word_losses, {}),
    "divides by its own count": (writer, texts, word_losses, {"average_tokens_across_devices": False}),
    "ignores the count": (classifier, labelled, class_losses, {}),
    "is not given a count": (lambda: classifier(accepts_loss_kwargs=False), labelled, class_losses, {}),
}


def train_on_a_rank(folder):
    """What each of the two processes does. It saves its LRs, its losses computed by hand, and its weights."""
    found = {}
    for kind, (make, examples, losses, arguments) in RANKED.items():
        data = examples(32)
        hand, schedule = ByHand(losses, data), Schedule.load(folder / "s.safetensors")
        arguments = settings(folder, ddp_backend="gloo", gradient_accumulation_steps=2, **arguments)
        watch = Watch()
        trainer = alone(make(), arguments, schedule, data, callbacks=[hand, watch])
        trainer.train()
        weights = torch.cat([weight.detach().reshape(-1) for weight in trainer.model.parameters()])
        found[kind] = {"lrs": [lrs[0] for lrs in watch.lrs], "totals": hand.totals, "weights": weights}
    torch.save(found, folder / f"rank{os.environ['RANK']}.pt")
    torch.distributed.barrier()
    os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit


def test_two_processes_use_the_lr_of_the_mean_loss_of_both(horizon, tmp_path):
    horizon.save(tmp_path / "s.safetensors")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {
        **os.environ,
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    result = subprocess.run(
        [*launch, __file__, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    for kind in RANKED:
        one, two = first[kind], second[kind]
        assert one["lrs"] == two["lrs"]
        assert torch.equal(one["weights"], two["weights"])
        both = zip(one["totals"], two["totals"], strict=True)
        if kind == "divides by its own count":
            means = [(total / count + other / number) / 2 for (total, count), (other, number) in both]
        else:
            means = [(total + other) / (count + number) for (total, count), (other, number) in both]
        torch.testing.assert_close(one["lrs"], replayed(horizon, means, 4), rtol=1e-4, atol=0)


if __name__ == "__main__":
    train_on_a_rank(Path(sys.argv[1]))
