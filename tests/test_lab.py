import pytest
import torch
from torch.optim import SGD

from mlrsnet.lab.learn import Learner, Settings
from mlrsnet.lab.models.small_cnn import small_cnn
from mlrsnet.lab.schedules import HAND_DESIGNED
from mlrsnet.lab.tasks import digits


def test_the_parts_of_digits_are_disjoint_and_complete():
    data = digits.load()
    assert [len(part.labels) for part in data] == [1200, 297, 300]
    pictures = torch.cat([part.images for part in data]).flatten(1)
    assert len(torch.unique(pictures, dim=0)) == len(pictures) == 1797
    assert all(set(part.labels.tolist()) == set(range(10)) for part in data)
    assert data.train.images.mean().abs() < 1e-4
    assert data.train.images.std() == pytest.approx(1, abs=1e-3)


def test_halves_of_the_classes_share_no_picture_and_are_numbered_from_0():
    low, high = digits.load((0, 1, 2, 3, 4)), digits.load((9, 8, 7, 6, 5))
    whole = digits.load()
    for part in range(3):
        assert len(low[part].labels) + len(high[part].labels) == len(whole[part].labels)
        assert set(low[part].labels.tolist()) == set(high[part].labels.tolist()) == set(range(5))
    nines = whole.test.images[whole.test.labels == 9]
    assert torch.equal(high.test.images[high.test.labels == 0], nines)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
@pytest.mark.parametrize("net", ["lstm", "mlp"])
def test_every_optimizer_and_network_learns_on_digits(optimizer, net):
    learner = Learner(Settings(classes=(0, 1, 2), epochs=4, every=3, optimizer=optimizer, net=net))
    assert list(learner.run()) == [0, 1, 2, 3, 4]
    assert learner.meta.skipped_updates == 0
    assert sum(learner.curves.loss[-5:]) < sum(learner.curves.loss[:5])


def test_the_small_cnn_maps_pictures_to_classes():
    assert small_cnn(3, 7)(torch.randn(2, 3, 8, 8)).shape == (2, 7)


@pytest.mark.parametrize("name", HAND_DESIGNED)
def test_hand_designed_schedules_follow_the_papers_settings(name):
    optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    scheduler = HAND_DESIGNED[name](optimizer, 210, 30)
    used = []
    for _ in range(210):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    expected = {
        "Fixed": {0: 0.1, 209: 0.1},
        "MultiStep": {62: 0.1, 63: 0.01, 126: 0.001, 189: 0.0001},
        "Exponential": {0: 0.1, 7: 0.095, 70: 0.1 * 0.95**10},
        "SGDR": {0: 0.1, 30: 0.1, 90: 0.1, 15: 0.050005, 209: 1e-5 + 0.1 * 1.713e-4},
        "Cosine": {0: 0.1, 105: 0.05, 140: 0.025},
    }[name]
    for step, lr in expected.items():
        assert used[step] == pytest.approx(lr, rel=1e-2), step
