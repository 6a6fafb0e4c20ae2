"""Loss along random rays: what is measured, that nothing is changed by it, and that it reaches record and report."""

import math

import pytest
import torch
from torch import nn

from mlrsnet_lab.feeds import Score
from mlrsnet_lab.loop import run
from mlrsnet_lab.records import read
from mlrsnet_lab.report import read_report, write_report
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.width import FARTHEST, POINTS, along_rays


def test_the_loss_of_a_bowl_grows_with_the_square_of_the_distance():
    model = nn.Linear(5, 4)
    centre = [parameter.detach().clone() for parameter in model.parameters()]

    def evaluate():
        squares = sum(((p - c) ** 2).sum() for p, c in zip(model.parameters(), centre, strict=True))
        return {"train": Score(float(squares), 0.0)}

    found = along_rays(model, evaluate, rays=3, seed=0)
    assert found["distance"] == pytest.approx([FARTHEST * i / (POINTS - 1) for i in range(POINTS)])
    assert len(found["train"]) == 3
    for ray in found["train"]:
        assert ray == pytest.approx([distance**2 for distance in found["distance"]], rel=1e-4, abs=1e-6)
    assert all(torch.equal(p, c) for p, c in zip(model.parameters(), centre, strict=True))


def test_channels_may_come_last():
    model = nn.Conv2d(3, 4, 3)

    def evaluate():
        return {"train": Score(float(sum((p * p).sum() for p in model.parameters())), 0.0)}

    plain = along_rays(model, evaluate, 2, seed=0)
    model = model.to(memory_format=torch.channels_last)  # as the loop does on a GPU
    assert not model.weight.is_contiguous()
    assert along_rays(model, evaluate, 2, seed=0)["train"] == [pytest.approx(ray, rel=1e-4) for ray in plain["train"]]
    assert not model.weight.is_contiguous()


def test_rays_differ_and_repeat():
    model = nn.Linear(3, 1, bias=False)

    def evaluate():
        return {"train": Score(float(model.weight[0, 0]), 0.0)}

    first, again, other = (along_rays(model, evaluate, 2, seed)["train"] for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first[0] != first[1]


def test_an_error_on_the_way_leaves_the_weights_alone():
    model = nn.Linear(3, 1)
    before = model.weight.detach().clone()

    def broken():
        raise RuntimeError

    with pytest.raises(RuntimeError):
        along_rays(model, broken, 1, 0)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("task", ["digits", "manual"])
def test_a_run_measures_it_at_its_end(tmp_path, task):
    model = {"digits": {"model": "mlp"}, "manual": {"model": "lstm", "model_options": {"hidden": 8}}}[task]
    record = run(RunSpec(task=task, epochs=1, rays=2, **model), tmp_path / "a", Settings(device="cpu"))
    rays = read(tmp_path / "a").data["rays"]
    assert len(rays["train"]) == len(rays["test"]) == 2
    assert rays["test"][0][0] == pytest.approx(record.result["test_loss"], rel=1e-4)
    assert all(math.isfinite(loss) for ray in rays["train"] for loss in ray)
    page, _ = write_report(tmp_path)
    assert "test loss along random rays" in page.read_text()
    assert read_report(tmp_path).runs[0].ray("train")[0][-1] == FARTHEST


def test_without_it_nothing_is_recorded(tmp_path):
    record = run(RunSpec(task="digits", model="mlp", epochs=1), tmp_path / "a", Settings(device="cpu"))
    assert "rays" not in record.data
    page, _ = write_report(tmp_path)
    assert "random rays" not in page.read_text()
