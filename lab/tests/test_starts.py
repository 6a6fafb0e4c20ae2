"""Fine-tuning: a start is made once, decides the first weights, and its record says what doing nothing would leave."""

from dataclasses import replace

import pytest
import torch
from runs import CPU, TINY, assert_same, stop_and_resume, tiny

from mlrsnet_lab import starts
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

START = TINY | {"lr": 0.2, "seed": 5, "epochs": 1}


def test_a_fine_tuning_starts_where_its_start_ended_and_is_made_once(tmp_path, monkeypatch):
    first = Stepper(RunSpec(**START), CPU, tmp_path)
    for _ in range(first.total_steps):
        first.step()
    tuned = Stepper(tiny(start=START), CPU, tmp_path)
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, tuned.model.state_dict()[name])
    monkeypatch.setattr(starts.torch, "save", lambda *words: pytest.fail("it is trained again"))
    Stepper(tiny(start=START, seed=3), CPU, tmp_path)


def test_a_record_says_what_doing_nothing_would_leave(tmp_path):
    record = run(tiny(start=START, lr=1e-9), settings=Settings(device="cpu", root=tmp_path))
    before = record.data["before"]
    assert before["test"]["metric"] == pytest.approx(record.result["last"])
    assert before["val"]["loss"] == pytest.approx(record.result["val_loss"], rel=1e-4)
    assert before["new"] == []
    assert "before" not in run(tiny(epochs=1), settings=Settings(device="cpu")).data


@pytest.mark.parametrize("optimizer", ["sgd", "schedule-free-sgd", "l-dog"])
def test_a_fine_tuning_ends_alike_if_it_is_stopped_and_if_its_start_is_made_anew(optimizer, tmp_path):
    spec = tiny(start=START, optimizer=optimizer, lr=1.0 if optimizer == "l-dog" else 0.02)
    whole = run(spec, settings=Settings(device="cpu", root=tmp_path / "data"))
    assert_same(
        stop_and_resume(spec, tmp_path / "run", settings=Settings(device="cpu", root=tmp_path / "other")), whole
    )


def test_a_layer_for_other_classes_is_new_and_the_rest_is_kept(tmp_path):
    spec = tiny(start=START, task_options={"classes": [2, 3, 4]})
    stepper = Stepper(spec, CPU, tmp_path)
    assert stepper.before["new"] == ["3.weight", "3.bias"]
    with pytest.raises(ValueError, match="start must train a network like the spec's model"):
        Stepper(replace(spec, model="small_cnn", model_options={}), CPU, tmp_path)


@pytest.mark.parametrize("damage", [lambda raw: raw[:100], lambda raw: raw[:900] + bytes([raw[900] ^ 4]) + raw[901:]])
def test_a_damaged_start_is_named_and_trained_again_to_the_same_weights(damage, tmp_path):
    first = Stepper(tiny(start=START), CPU, tmp_path).before
    (file,) = (tmp_path / starts.FOLDER).iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with pytest.warns(UserWarning, match=rf"{file.name} is damaged .*: the weights are trained again"):
        assert Stepper(tiny(start=START), CPU, tmp_path).before == first
    assert file.read_bytes() == whole


def test_a_start_is_complete_in_the_spec_and_specs_without_one_are_as_before():
    spec = tiny(start=START)
    assert RunSpec.from_json(spec.to_json()) == spec
    assert spec.start["weight_decay"] == RunSpec().weight_decay
    assert "start" not in tiny().to_dict()
    assert spec.describe().endswith(
        "epochs, starting from (digits (classes [0, 1]), mlp (width 8, depth 1), sgd, cosine, batch 4, 1 epochs)"
    )


def test_the_second_half_has_no_picture_of_the_first_and_the_same_held_out_ones(tmp_path):
    import numpy as np

    from mlrsnet_lab.datasets import load

    x = np.arange(40 * 16, dtype=np.uint16).astype(np.uint8).reshape(40, 4, 4, 1)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(40) % 2, x_test=x, y_test=np.arange(40) % 2)
    path, options = tmp_path / "own.npz", {"val_size": 4}
    first, second = load(path, fraction=0.5, **options), load(path, begin=0.5, **options)
    assert torch.equal(first.val.images, second.val.images)
    assert (first.sizes["train"], second.sizes["train"]) == (16, 20)
    with pytest.raises(ValueError, match="begin must be at least 0 and below fraction"):
        load(path, fraction=0.5, begin=0.5)
