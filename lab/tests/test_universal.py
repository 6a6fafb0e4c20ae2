"""The broad distribution: kinds of trainings, what is kept back, fine-tuning, data that is made small once."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mlrsnet_lab import universal
from mlrsnet_lab.horizon import Data, Evolution, HorizonTrainer, Tasks
from mlrsnet_lab.horizon.policies import Defaults
from mlrsnet_lab.horizon.population import Population
from mlrsnet_lab.horizon.training import Training
from mlrsnet_lab.models.small_text import AttentionNet, RecurrentNet
from mlrsnet_lab.universal import SmallSource, begin_trained, distribution, load

PLAY = "Now is the winter of our discontent made glorious summer by this sun of York; and all the clouds. " * 300


@pytest.fixture
def root(tmp_path):
    """A data folder with one text; digits come with scikit-learn."""
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text(PLAY)
    return tmp_path


@pytest.fixture
def two_sets(monkeypatch):
    two = (SmallSource("digits", "digits", 8), SmallSource("shakespeare", "tinyshakespeare"))
    monkeypatch.setattr(universal, "TRAINING", two)
    monkeypatch.setattr(universal, "VALIDATION", two)


def is_low(model, data):
    """Whether the loss of a network is well below that of guessing."""
    with torch.no_grad():
        loss = cross_entropy(model(data.inputs).flatten(0, -2), data.targets.flatten())
    return loss < 0.6 * np.log(data.num_classes)


@pytest.mark.usefixtures("two_sets")
def test_every_kind_yields_tasks(root):
    train, val = distribution(root, kinds=12, validation=6, horizons=(5, 9))
    assert (len(train.kinds), len(val.kinds)) == (12, 6)
    for sampler in (*train.kinds, *val.kinds):
        for task in sampler.sample(1, 2):
            assert 5 <= task.total_steps <= 9
            assert not set(task.train.tolist()) & set(task.val.tolist())
    assert {str(sampler.optimizers[0]) for sampler in train.kinds} >= {"sgd", "adamw"}


@pytest.mark.usefixtures("two_sets")
def test_the_same_call_draws_the_same_kinds_and_validation_has_others(root):
    first, again = (distribution(root, kinds=8, validation=8, horizons=(5, 9)) for _ in range(2))

    def told(mixture):
        return [(kind.optimizers, kind.batch_sizes, kind.label_smoothings) for kind in mixture.kinds]

    assert told(first[0]) == told(again[0])
    assert told(first[0]) != told(first[1])


def test_two_sets_are_for_validation_alone():
    kept_back = {source.name for source in universal.VALIDATION} - {source.name for source in universal.TRAINING}
    assert kept_back == {"svhn-16", "ptb"}


@pytest.mark.usefixtures("two_sets")
def test_a_schedule_learns_from_it(root):
    train, val = distribution(root, kinds=4, validation=2, horizons=(3, 5))
    trainer = HorizonTrainer(Tasks(train, 2, held_out=2, measured_on=val), None, Evolution(generations=2, members=2))
    assert trainer.run(every=2).num_phases == 1
    assert np.isfinite(trainer.comparisons[-1].gap())


def test_data_is_made_small_once(root):
    source = SmallSource("digits-small", "digits", 6)
    made = load(source, root)
    assert made.inputs.shape[1:] == (1, 6, 6)
    assert abs(float(made.inputs.mean())) < 1e-3
    load.cache_clear()
    (root / "tinyshakespeare" / "input.txt").unlink()
    assert torch.equal(load(source, root).inputs, made.inputs)
    assert [path.name for path in (root / "universal").iterdir()] == ["digits-small.npz"]


def test_a_kept_set_that_is_cut_is_named_and_one_whose_writing_stopped_is_not_there(root, monkeypatch):
    source = SmallSource("digits-cut", "digits", 6)
    path = root / "universal" / "digits-cut.npz"
    made = load(source, root)
    load.cache_clear()
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(
        ValueError, match=r"digits-cut.npz cannot be read \(ValueError: .+\): delete it, and it will be made again"
    ):
        load(source, root)
    path.unlink()

    def stop(file, **arrays):
        if not hasattr(file, "write"):
            file.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", stop)
        with pytest.raises(KeyboardInterrupt):
            load(source, root)
    assert torch.equal(load(source, root).inputs, made.inputs)


def test_text_comes_in_pieces_that_are_one_character_apart(root):
    text = load(SmallSource("play", "tinyshakespeare"), root)
    assert text.inputs.shape[1] == universal.LENGTH
    assert torch.equal(text.inputs[:, 1:], text.targets[:, :-1])


def test_only_training_pictures_are_used(root):
    from mlrsnet_lab import datasets

    task, made = datasets.load("digits"), load(SmallSource("digits-8", "digits", 8), root)
    assert len(made.inputs) == len(task.train.labels) < 1797


@pytest.mark.parametrize("is_text", [False, True])
def test_fine_tuning_begins_with_a_low_loss_on_examples_it_has_not_seen(root, is_text):
    data = load(SmallSource("play", "tinyshakespeare") if is_text else SmallSource("digits-8", "digits", 8), root)

    def fresh(data):
        if is_text:
            return RecurrentNet(data.num_classes, 16)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, data.num_classes))

    model, rest = begin_trained(fresh, data)
    assert len(rest.inputs) == len(data.inputs) - len(data.inputs) // 4
    assert not is_low(fresh(rest), rest)
    assert is_low(model(rest), rest)


@pytest.mark.parametrize("make", [RecurrentNet, lambda count: AttentionNet(count, 12, 16, 2)])
def test_small_text_networks_read_only_what_came_before(make):
    torch.manual_seed(0)
    network, tokens = make(7), torch.randint(7, (3, 12))
    changed = tokens.clone()
    changed[:, 8] = (changed[:, 8] + 1) % 7
    before, after = network(tokens), network(changed)
    assert before.shape == (3, 12, 7)
    torch.testing.assert_close(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8], after[:, 8])


def test_populations_of_every_picture_network_take_a_step():
    data = Data(torch.randn(60, 3, 8, 8), torch.arange(60) % 3)
    for options in universal.PICTURE_NETWORKS:
        tasks = universal.TaskSampler(
            [data], [universal.factory(**options)], horizons=(2, 2), batch_sizes=(8,), val_size=10
        ).sample(0, 2)

        population = Population(tasks[0], 2, 1, Defaults(2, torch.device("cpu")))
        trained = Training(population, tasks, lambda outputs, targets: outputs.sum((1, 2))).run()
        assert torch.isfinite(trained.losses).all(), options
