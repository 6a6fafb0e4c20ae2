"""What is around a run: the caller's random numbers and settings, devices, packages that are not there."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from runs import CPU, assert_same, of_text, tiny

from mlrsnet_lab.devices import resolve
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec


def test_the_callers_random_numbers_and_settings_are_left_alone(monkeypatch):
    for set_up in (lambda: None, lambda: torch.use_deterministic_algorithms(True, warn_only=True)):
        set_up()
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
        before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
        flags = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
        try:
            run(tiny(epochs=1, deterministic=True), settings=Settings(device="cpu"))
            after = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
            assert torch.equal(before[0], after[0])
            assert before[1:] == after[1:]
            assert torch.backends.cudnn.benchmark is True
            found = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
            assert found == flags
        finally:
            torch.use_deterministic_algorithms(False)


def test_the_callers_random_numbers_do_not_choose_the_training(texts):
    torch.manual_seed(1)
    first = run(of_text(), settings=Settings(device="cpu", root=texts))  # with dropout
    torch.manual_seed(2)
    assert_same(run(of_text(), settings=Settings(device="cpu", root=texts)), first)


@pytest.mark.parametrize("device", ["tpu", "meta", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused_with_the_words_for_those_that_are(device):
    with pytest.raises(ValueError, match="cpu"):
        resolve(device)


def test_auto_is_a_device_that_is_there():
    assert resolve("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve("cpu") == CPU


BLOCKED = """
import importlib, sys
for name in ("rich", "matplotlib", "tensorboard", "sklearn", "torchvision", "PIL", "schedulefree", "prodigyopt", "dog", "timm"):
    sys.modules[name] = None
for name in ("loop", "datasets", "models", "feeds", "methods", "reproduce"):
    importlib.import_module(f"mlrsnet_lab.{name}")
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
import numpy as np
random = np.random.default_rng(0)
x, y = random.integers(0, 256, (40, 4, 4, 1), dtype=np.uint8), np.arange(40) % 2
np.savez(sys.argv[1], x_train=x, y_train=y, x_test=x, y_test=y)
spec = RunSpec(task=sys.argv[1], task_options={"val_size": 8}, model="mlp", batch_size=4, epochs=1)
cpu = Settings(device="cpu")
print(run(spec, settings=cpu).status)
for name in ("prodigy", "l-dog", "lamb"):
    try:
        run(RunSpec(optimizer=name, task=sys.argv[1], task_options={"val_size": 8}, model="mlp", batch_size=4), settings=cpu)
    except ImportError as error:
        print(error)
"""


def test_a_machine_without_terminal_and_picture_packages_can_train(tmp_path):
    words = [sys.executable, "-c", BLOCKED, str(tmp_path / "own.npz")]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert found.stdout.splitlines() == [
        "finished",
        *(
            f"this optimizer needs the package {name}, which is not installed: pip install {name}"
            for name in ("prodigyopt", "dog-optimizer", "timm")
        ),
    ], found.stderr


def test_a_model_for_text_is_refused_for_pictures_and_the_other_way_round(texts):
    with pytest.raises(ValueError, match="which reads text"):
        run(RunSpec(model="lstm"), settings=Settings(device="cpu"))
    with pytest.raises(ValueError, match="which reads pictures"):
        run(RunSpec(task="ptb", model="mlp"), settings=Settings(device="cpu", root=texts))
