"""The LRs in a logger's own files are those that the optimizer used: TensorBoard, Weights & Biases offline, MLflow's file store."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import log_everywhere
import numpy as np
import pytest
from logged_values import from_mlflow, from_tensorboard, from_wandb

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = """
import json, runpy, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
used = []
register_optimizer_step_post_hook(lambda optimizer, *_: used.append(float(optimizer.param_groups[0]["lr"])))
runpy.run_path(sys.argv[1], run_name="__main__")
json.dump(used, open("used.json", "w"))
"""
LOGGERS = [name for name in ("tensorboard", "wandb", "mlflow") if importlib.util.find_spec(name)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where everything is written, and nothing is sent anywhere."""
    monkeypatch.chdir(tmp_path)
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    uri = {"MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri()}
    for name, value in {**offline, **uri, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def run(*words):
    """The LRs that a script used, and what it printed."""
    result = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(Path("used.json").read_text()), result.stdout


def on_disk(logger, folder):
    """Metrics by name and step."""
    if logger == "mlflow":
        return from_mlflow((folder / "mlruns").as_uri())
    if logger == "wandb":
        return from_wandb(folder / "wandb")
    (events,) = folder.rglob("events.out.tfevents*")
    return from_tensorboard(events.parent)


def in_order(metric):
    return [metric[step] for step in sorted(metric)]


def kept(logger, lrs):
    """With as many digits as a logger keeps."""
    return [float(np.float32(lr)) for lr in lrs] if logger == "tensorboard" else lrs


@pytest.mark.parametrize(
    "logger", ["tensorboard", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("wandb", "mlflow"))]
)
def test_the_example_logs_the_lr_of_every_step(logger, folder):
    pytest.importorskip(logger)
    used, printed = run("-c", RUN, EXAMPLES / f"log_{logger}.py")
    found = on_disk(logger, folder)
    assert "epoch 9" in printed
    assert len(set(used)) == 180
    assert found["lr"] == dict(enumerate(kept(logger, used)))
    assert found["loss"].keys() == found["lr"].keys()


def test_lightnings_monitor_logs_the_lr_of_the_step_before_to_every_logger(folder):
    """It reads the LR before a batch. No schedule that measures the step can know its LR by then."""
    used, _ = run(log_everywhere.__file__, "lightning", *LOGGERS)
    assert len(set(used)) == 21
    for logger in LOGGERS:
        assert in_order(on_disk(logger, folder)["lr-SGD"])[1:] == kept(logger, used[:-1]), logger


@pytest.mark.nightly
def test_transformers_reports_the_lr_of_every_step_to_every_logger(folder):
    used, _ = run(log_everywhere.__file__, "transformers", *LOGGERS)
    assert len(set(used)) == 14
    for logger in LOGGERS:
        name = "learning_rate" if logger == "mlflow" else "train/learning_rate"
        assert in_order(on_disk(logger, folder)[name]) == kept(logger, used), logger
