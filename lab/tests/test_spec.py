"""RunSpec: one training said completely, in JSON and back, and refused where it is wrong."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrsnet.baselines import HAND_DESIGNED
from mlrsnet_lab.datasets import KNOWN
from mlrsnet_lab.methods import SCHEDULES
from mlrsnet_lab.models import IMAGE, PIECES, TEXT
from mlrsnet_lab.optimizers import OPTIMIZERS
from mlrsnet_lab.spec import PRECISIONS, RunSpec

positive = st.floats(1e-8, 1e8)
counts = st.integers(1, 10**6)
SPECS = st.builds(
    RunSpec,
    task=st.sampled_from([name for name in KNOWN if not name.startswith("digits")]),
    model=st.sampled_from([*IMAGE, *TEXT, *PIECES]),
    optimizer=st.sampled_from(list(OPTIMIZERS)),
    schedule=st.sampled_from(list(HAND_DESIGNED)),
    epochs=counts,
    batch_size=counts,
    lr=positive,
    weight_decay=st.just(0) | positive,
    clip_norm=st.none() | positive,
    precision=st.sampled_from(PRECISIONS),
    seed=st.integers(0, 2**32 - 1),
    deterministic=st.booleans(),
    eval_every=counts,
    sequence_length=counts,
    schedule_options=st.fixed_dictionaries({}, optional={"warmup": st.floats(0, 0.99)}),
)


@given(SPECS)
def test_a_spec_survives_json(spec):
    assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec.from_dict(spec.to_dict()) == spec
    assert list(json.loads(spec.to_json())) == [field.name for field in fields(RunSpec) if field.name != "start"]


def test_options_survive_json_as_they_are_compared():
    spec = RunSpec(task_options={"classes": (3, 5)}, schedule="multistep", schedule_options={"milestones": (0.5, 0.75)})
    assert RunSpec.from_json(spec.to_json()) == spec
    assert spec == RunSpec(
        task_options={"classes": [3, 5]}, schedule="multistep", schedule_options={"milestones": [0.5, 0.75]}
    )


def test_numbers_of_numpy_are_numbers():
    spec = RunSpec(epochs=np.int64(3), lr=np.float32(0.5), seed=np.uint8(7), clip_norm=np.float64(2))
    assert spec == RunSpec(epochs=3, lr=0.5, seed=7, clip_norm=2)
    assert RunSpec.from_json(spec.to_json()) == spec


def test_a_path_is_a_task(tmp_path):
    assert RunSpec(task=tmp_path / "own.npz") == RunSpec(task=str(tmp_path / "own.npz"))


def test_a_spec_does_not_change_with_the_dict_it_was_made_from():
    options = {"width": 4}
    spec = RunSpec(model_options=options)
    options["width"] = 8
    assert spec.model_options == {"width": 4}


BAD = {
    "epochs": ({"epochs": 0}, "epochs must be a whole number >= 1, got 0"),
    "epochs as float": ({"epochs": 2.0}, "epochs must be a whole number >= 1, got 2.0"),
    "epochs as text": ({"epochs": "2"}, "epochs must be a whole number >= 1, got '2'"),
    "batch_size": ({"batch_size": -1}, "batch_size must be a whole number >= 1, got -1"),
    "batch_size as bool": ({"batch_size": True}, "batch_size must be a whole number >= 1, got True"),
    "start": ({"start": {"model": "mpl"}}, "model must be one of"),
    "start type": ({"start": 3}, "start must be an object of names and values, got 3"),
    "rays": ({"rays": -1}, "rays must be a whole number >= 0, got -1"),
    "eval_every": ({"eval_every": 0}, "eval_every must be a whole number >= 1, got 0"),
    "sequence_length": ({"sequence_length": None}, "sequence_length must be a whole number >= 1, got None"),
    "seed": ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
    "large seed": ({"seed": 2**32}, "seed must be below 2^32, got 4294967296"),
    "lr 0": ({"lr": 0}, "lr must be > 0, got 0"),
    "lr nan": ({"lr": math.nan}, "lr must be a finite number, got nan"),
    "lr text": ({"lr": "0.1"}, "lr must be a finite number, got '0.1'"),
    "weight_decay": ({"weight_decay": -1e-4}, "weight_decay must be >= 0, got -0.0001"),
    "weight_decay inf": ({"weight_decay": math.inf}, "weight_decay must be a finite number, got inf"),
    "clip_norm": ({"clip_norm": 0}, "clip_norm must be > 0, got 0: or null for none"),
    "precision": ({"precision": "fp16"}, "precision must be one of auto, fp32, bf16; got 'fp16'"),
    "precision list": ({"precision": ["bf16"]}, "precision must be one of auto, fp32, bf16; got ['bf16']"),
    "deterministic": ({"deterministic": 1}, "deterministic must be true or false, got 1"),
    "deterministic text": ({"deterministic": "false"}, "deterministic must be true or false, got 'false'"),
    "task": ({"task": "cifar11"}, f"one of {', '.join(KNOWN)}, a path that ends in .npz or a folder"),
    "task number": ({"task": 3}, "task must be a name or a path, got 3"),
    "task nothing": ({"task": None}, "task must be a name or a path, got None"),
    "model": ({"model": "resnet19"}, f"model must be one of {', '.join([*IMAGE, *TEXT, *PIECES])}; got 'resnet19'"),
    "model number": ({"model": 18}, "model must be one of"),
    "optimizer": ({"optimizer": "momentum"}, f"optimizer must be one of {', '.join(OPTIMIZERS)}; got 'momentum'"),
    "optimizer list": ({"optimizer": ["sgd"]}, "optimizer must be one of"),
    "schedule": ({"schedule": "cosin"}, f"schedule must be one of {', '.join(SCHEDULES)}; got 'cosin'"),
    "schedule number": ({"schedule": 1}, "schedule must be one of"),
    **{
        f"{name}_options": (
            {f"{name}_options": ["x"]},
            f"{name}_options must be an object of names and values, got ['x']",
        )
        for name in ("task", "model", "optimizer", "schedule")
    },
    "options nothing": ({"model_options": None}, "model_options must be an object of names and values, got None"),
    "task option": (
        {"task_options": {"class": [1]}},
        "digits has no option 'class', got class=[1]: its options are val_size,",
    ),
    "task option value": ({"task_options": {"leaky": "false"}}, "leaky must be True or False, got 'false'"),
    "text option": ({"task": "ptb", "task_options": {"size": 1}}, "ptb has no option 'size'"),
    "model option": (
        {"model_options": {"depth": 3}},
        "model_options has no option 'depth' for 'small_cnn': its options are width",
    ),
    "optimizer option": (
        {"optimizer": "sgdm", "optimizer_options": {"beta1": 0.9}},
        "optimizer_options has no option 'beta1' for 'sgdm': its options are momentum, nesterov",
    ),
    "no options": (
        {"optimizer_options": {"momentum": 0.9}},
        "optimizer_options has no option 'momentum' for 'sgd': it has none",
    ),
    "schedule option": (
        {"schedule_options": {"gamma": 0.1}},
        "schedule_options has no option 'gamma' for 'cosine': its options are end, warmup",
    ),
    "method option": (
        {"schedule": "mlr-snet", "schedule_options": {"warmup": 0.1}},
        "schedule_options has no option 'warmup' for 'mlr-snet': its options are every, meta_lr,",
    ),
    "option not JSON": (
        {"schedule": "learned", "schedule_options": {"schedule": Path("a")}},
        "schedule_options must hold what JSON can hold",
    ),
    "option nan": ({"schedule_options": {"end": math.nan}}, "schedule_options must hold what JSON can hold"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_field_is_named_with_its_rule_and_value(case):
    values, message = BAD[case]
    with pytest.raises(ValueError) as found:
        RunSpec(**values)
    assert message in str(found.value)
    assert "\n" not in str(found.value)


def test_every_field_is_in_the_table_of_wrong_ones():
    assert {field.name for field in fields(RunSpec)} == {name for values, _ in BAD.values() for name in values}


def test_an_unknown_field_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no field 'learning_rate': its fields are task, model, .*, schedule_options"):
        RunSpec.from_dict({"learning_rate": 0.1})


@pytest.mark.parametrize("values", [[], "digits", 3, None])
def test_json_that_is_no_object_is_refused(values):
    with pytest.raises(ValueError, match="a run's spec must be an object"):
        RunSpec.from_json(json.dumps(values))


@pytest.mark.parametrize("text", ["", "{", "{'task': 'digits'}", '{"task": "digits",}', "task: digits"])
def test_broken_json_is_answered_with_an_example(text):
    with pytest.raises(ValueError, match=r'must be JSON \(.*\): write an object such as {"task": "digits"}'):
        RunSpec.from_json(text)


def test_a_file_holds_a_spec_or_a_runs_record(tmp_path):
    spec = RunSpec(model="mlp", epochs=3, schedule_options={"warmup": 0.1})
    (tmp_path / "spec.json").write_text(spec.to_json())
    (tmp_path / "record.json").write_text(json.dumps({"format": 1, "status": "finished", "spec": spec.to_dict()}))
    assert RunSpec.from_file(tmp_path / "spec.json") == RunSpec.from_file(tmp_path / "record.json") == spec


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    broken, binary = tmp_path / "broken.json", tmp_path / "binary.json"
    broken.write_text("{")
    binary.write_bytes(b"\xff\xfe{")
    for path in (broken, binary, tmp_path / "absent.json", tmp_path):
        with pytest.raises(ValueError, match=r"cannot be read as a run's spec") as found:
            RunSpec.from_file(path)
        assert str(path) in str(found.value)


def test_a_description_tells_apart_what_is_not_at_its_default_and_leaves_the_seed_out():
    spec = RunSpec(schedule_options={"warmup": 0.1}, seed=5)
    assert spec.describe() == "digits, small_cnn, sgd, cosine (warmup 0.1), batch 64, 40 epochs"
    assert replace(spec, seed=6).describe() == spec.describe()
