"""`lr_scheduler_type="learned"`: in a real Trainer, on a script's command line, and what it says about mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import glue_like
import pytest
import torch
from trainer_fits import CLASSES, Watch, classifier, labelled, logged, same_weights, settings, texts, writer
from transformers import (
    GPT2LMHeadModel,
    SchedulerType,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    get_scheduler,
)

import mlrsnet
from mlrsnet.integrations.transformers import LearnedLRCallback, register

register()
LEARNED = {"lr_scheduler_type": "learned"}


def by_name(model, folder, data, kwargs=None, callbacks=(), **changes):
    arguments = settings(folder, **LEARNED, lr_scheduler_kwargs=kwargs, **changes)
    return Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks))


def with_callback(model, folder, data, options=None, callbacks=(), **changes):
    learned = LearnedLRCallback(**options or {})
    return Trainer(model, settings(folder, **changes), train_dataset=data, callbacks=[learned, *callbacks])


@pytest.mark.parametrize(
    ("kwargs", "changes"),
    [
        (None, {}),
        (None, {"gradient_accumulation_steps": 3, "max_grad_norm": 0.1}),
        (None, {"max_steps": 5, "bf16": True, "optim": "adafactor"}),
        ({"schedule": "universal", "num_classes": 32, "scale": 0.5}, {"gradient_accumulation_steps": 2}),
    ],
)
def test_the_name_trains_as_the_callback_does(tmp_path, kwargs, changes):
    watches = Watch(), Watch()
    named = by_name(writer(dropout=0.2), tmp_path, texts(), kwargs, watches[:1], **changes)
    named.train()
    other = with_callback(writer(dropout=0.2), tmp_path, texts(), kwargs, watches[1:], **changes)
    other.train()
    assert logged(named) == logged(other) == [lrs[0] for lrs in watches[0].lrs]
    assert len(set(logged(named))) == named.state.max_steps == named.lr_scheduler.total_steps
    assert watches[0].losses == watches[1].losses
    same_weights(named.model, other.model)


def test_a_run_that_is_resumed_by_name_is_the_uninterrupted_one(tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 2, "gradient_accumulation_steps": 2}
    whole, resumed = (by_name(writer(dropout=0.3), tmp_path, texts(), **saved) for _ in range(2))
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert len(logged(whole)) == 8
    assert logged(resumed) == logged(whole)
    same_weights(whole.model, resumed.model)


def test_a_checkpoint_of_the_callback_goes_on_by_name(tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 4}
    whole = with_callback(classifier(), tmp_path, labelled(), **saved)
    whole.train()
    resumed = by_name(classifier(), tmp_path, labelled(), **saved)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert logged(resumed) == logged(whole)


def test_training_twice_starts_twice(tmp_path):
    trainer = by_name(classifier(), tmp_path, labelled(), max_steps=3)
    trainer.train()
    first = trainer.lr_scheduler
    trainer.train()
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
    assert isinstance(trainer.model, GPT2LMHeadModel)
    assert isinstance(trainer.lr_scheduler, mlrsnet.LearnedLR)


def test_a_plain_loop_gets_a_schedule_from_get_scheduler():
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    lr = get_scheduler("learned", optimizer, num_warmup_steps=0, num_training_steps=10)
    assert (type(lr), lr.total_steps) == (mlrsnet.LearnedLR, 10)
    with pytest.warns(UserWarning, match="num_warmup_steps has no effect with the scheduler 'learned', got 3"):
        get_scheduler("learned", optimizer, num_warmup_steps=3, num_training_steps=10)


def test_registering_twice_leaves_one_name():
    register()
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


@pytest.mark.parametrize("make", [by_name, with_callback])
def test_training_arguments_that_have_no_effect_are_told(tmp_path, make):
    trainer = make(classifier(), tmp_path, labelled(), learning_rate=1e-3, warmup_steps=5, max_steps=2)
    with pytest.warns(UserWarning, match="got learning_rate=0.001, warmup_steps=5, which has no effect") as caught:
        trainer.train()
    assert len(caught) == 1


def test_arguments_beside_a_callback_are_told_to_have_no_effect(tmp_path):
    arguments = settings(tmp_path, **LEARNED, lr_scheduler_kwargs={"scale": 2.0}, max_steps=2)
    trainer = Trainer(classifier(), arguments, train_dataset=labelled(), callbacks=[LearnedLRCallback()])
    with pytest.warns(UserWarning, match=r"got lr_scheduler_kwargs=\{'scale': 2.0\}, which has no effect"):
        trainer.train()


def test_an_optimizer_that_steps_inside_backward_is_refused(tmp_path):
    from transformers.trainer_pt_utils import LayerWiseDummyOptimizer

    model = classifier()
    inner = {weight: torch.optim.SGD([weight], lr=0.1) for weight in model.parameters()}
    for more in (LEARNED, {}):
        trainer = Trainer(
            model,
            settings(tmp_path, **more),
            train_dataset=labelled(),
            callbacks=[] if more else [LearnedLRCallback()],
            optimizers=(LayerWiseDummyOptimizer(optimizer_dict=inner, lr=0.1), None),
        )
        with pytest.raises(ValueError, match=r"optim must leave the step to the Trainer .* got a layer-wise one"):
            trainer.train()


def launch(*words, module=("-m", "mlrsnet.integrations.transformers")):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    words = [sys.executable, *module, *map(str, words)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)


def command_line(folder):
    quick = "--use_cpu --no_count --report_to none --disable_tqdm true --logging_steps 1 --dataloader_pin_memory false"
    return [*quick.split(), "--output_dir", folder, "--per_device_train_batch_size", "4", "--max_steps", "6"]


def test_a_script_that_knows_nothing_of_it_takes_the_name_on_its_command_line(tmp_path):
    words = [Path(glue_like.__file__), *command_line(tmp_path), "--lr_scheduler_type", "learned"]
    result = launch(*words, "--lr_scheduler_kwargs", '{"num_classes": 3}')
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.strip().splitlines()[-1])
    same = {"max_steps": 6, "per_device_train_batch_size": 4, "seed": 42}
    model = classifier(accepts_loss_kwargs=False)
    trainer = with_callback(model, tmp_path, labelled(), {"num_classes": CLASSES}, **same)
    trainer.train()
    assert found == {"scheduler": "LearnedLR", "lrs": logged(trainer)}


def test_the_name_is_not_known_to_a_script_started_without_it(tmp_path):
    result = launch(glue_like.__file__, *command_line(tmp_path), "--lr_scheduler_type", "learned", module=())
    assert result.returncode != 0
    assert "invalid choice: 'learned'" in result.stderr


@pytest.mark.parametrize("words", [[], ["no_such_script.py"]])
def test_a_script_that_is_not_there_is_answered_with_the_usage(words):
    result = launch(*words)
    assert result.returncode != 0
    assert f"SCRIPT must be a Python file, got {words[0] if words else 'none'}" in result.stderr
    assert "Traceback" not in result.stderr
