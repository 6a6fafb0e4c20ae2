"""Full-horizon meta-training: what is learned, that it can be repeated, and that it goes on after a stop."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from mlrsnet import LearnedLR, Schedule
from mlrsnet.baselines import factors
from mlrsnet.card import Card
from mlrsnet.nets import LSTMNet, MLPNet
from mlrsnet.ranges import Fixed, Gamma
from mlrsnet_lab.horizon import Compute, Data, Evolution, HeldOut, HorizonTrainer, Tasks, TaskSampler, judging
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.comparison import Comparison
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.horizon.fitness import FITNESS
from mlrsnet_lab.horizon.seeds import seed_from
from mlrsnet_lab.horizon.trainer import hold_out


def blobs(num=240, classes=3):
    """Clouds of points that overlap, so that the last LRs matter."""
    random = torch.Generator().manual_seed(0)
    targets = torch.arange(num) % classes
    centres = torch.randn(classes, 4, generator=random)
    return Data(centres[targets] + 0.8 * torch.randn(num, 4, generator=random), targets)


DATA = blobs()


def linear(data):
    return nn.Linear(4, data.num_classes)


def sampler(**changes):
    values = {"horizons": (8, 16), "batch_sizes": (16,), "val_size": 80, "num_classes": (2, None)}
    return TaskSampler([DATA], [linear], **(values | changes))


def trainer(sampled=None, begin=None, **changes):
    values = {
        "sampler": sampled or sampler(),
        "per_generation": 2,
        "held_out": 3,
        "generations": 4,
        "members": 4,
    } | changes

    def settings(kind):
        return kind(**{name: values.pop(name) for name in kind.__dataclass_fields__ if name in values})

    made = HorizonTrainer(settings(Tasks), begin, settings(Evolution), settings(Compute))
    assert not values
    return made


def beginning(gamma=1.0, net=None, **card):
    return Schedule(net or first_net(), Card(gamma=gamma if isinstance(gamma, Gamma) else Fixed(gamma), **card))


def weights(schedule):
    return torch.cat([p.flatten() for p in schedule.net.parameters()])


def test_the_same_seed_learns_the_same_schedule_and_another_seed_another():
    one, again, other = (trainer(seed=seed).run() for seed in (3, 3, 4))
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    assert one.card == again.card


@pytest.mark.parametrize("stopped_after", [1, 3])
def test_a_stopped_meta_training_goes_on_to_the_same_schedule(stopped_after, tmp_path):
    whole = trainer()
    whole.run(every=2)
    first, second = trainer(), trainer()
    first.compare()
    for _ in range(stopped_after):
        first.step()
        if first.number % 2 == 0:
            first.compare()
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    second.run(every=2)
    assert second.schedule().fingerprint() == whole.schedule().fingerprint()
    assert second.schedule().card == whole.schedule().card
    assert second.history == whole.history
    assert second.comparisons == whole.comparisons


def test_a_state_of_other_settings_is_refused_by_name():
    state = trainer(sigma=0.2).state_dict()
    with pytest.raises(ValueError, match=r"the state belongs to a trainer with sigma 0.2: make this one with the same"):
        trainer().load_state_dict(state)
    others = {
        "net": {"begin": beginning(net=LSTMNet(8, inputs=("loss", "progress"))), "sigma": 0.2},
        "gamma": {"begin": beginning(7.0), "sigma": 0.2},
        "fitness": {"fitness": "loss", "sigma": 0.2},
        "precision": {"precision": "fp64", "sigma": 0.2},
        "held_out": {"held_out": 2, "sigma": 0.2},
    }
    for name, changes in others.items():
        with pytest.raises(ValueError, match=f"a trainer with {name}"):
            trainer(**changes).load_state_dict(state)
    with pytest.raises(ValueError, match=r"state must be what state_dict\(\) of a HorizonTrainer returned"):
        trainer().load_state_dict({})


def test_the_given_network_is_where_it_starts_and_stays_as_it_is():
    net = first_net(4)
    before = weights(Schedule(net))
    trainer(begin=beginning(net=net)).run()
    assert torch.equal(weights(Schedule(net)), before)


def test_no_generation_comes_after_the_last():
    made = trainer(generations=1)
    made.step()
    with pytest.raises(ValueError, match="generations must be above the 1 that are done, got 1"):
        made.step()


def test_a_generation_has_the_same_bits_whoever_trains_its_groups_and_in_whatever_order():
    alone, first, second = (trainer(together=1, per_generation=3) for _ in range(3))
    for _ in range(2):
        alone.step()
        groups = first.groups()
        assert sorted(groups) == [[0], [1], [2]]
        found = [*first.judge(groups[2:]), *second.judge(groups[:2])]
        assert first.finish(reversed(found)) == second.finish(found) == alone.history[-1]
    for other in (first, second):
        assert torch.equal(other.weights, alone.weights)
        assert other.loss_range == alone.loss_range


def test_tasks_train_together_up_to_the_limit():
    assert [len(group) for group in trainer(per_generation=5).groups()] == [5]
    assert [len(group) for group in trainer(per_generation=5, together=2).groups()] == [2, 2, 1]


def test_a_generation_without_all_its_groups_is_refused():
    made = trainer(together=1, per_generation=3)
    with pytest.raises(
        ValueError, match=r"found must hold every group of the generation, the tasks \[1, 2\] are missing"
    ):
        made.finish(made.judge([[0]]))
    with pytest.raises(ValueError, match=r"groups must be some of groups\(\), got \[7\] for 3 tasks"):
        list(made.judge([[7]]))


def test_losses_are_scaled_by_their_own_tasks_classes(monkeypatch):
    """Two lengths of one kind train one after the other in the same population."""

    class Two:
        def sample(self, seed, count):
            return [
                sampler(horizons=(5, 5), num_classes=(2,)).sample(seed, 1)[0],
                sampler(horizons=(9, 9), num_classes=(None,)).sample(seed, 1)[0],
            ]

    first, range_of = [], judging.range_of

    def listening(scaled):
        first.append(float(scaled[0, 0]))
        return range_of(scaled)

    monkeypatch.setattr(judging, "range_of", listening)
    made = trainer(Two(), beginning(1e-6), members=2, held_out=0, precision="fp64")
    made.step()
    for task, found in zip(Two().sample(seed_from("tasks", 0, 0), 2), first, strict=True):
        torch.manual_seed(task.seed)
        mask = torch.where(torch.arange(3) < task.num_classes, 0.0, -torch.inf)
        index = Batches(task).take(1)[0][0]
        outputs = task.model(task.data).double()(task.data.inputs[index].double()) + mask
        value = nn.functional.cross_entropy(outputs, task.labels()[index])
        assert found == pytest.approx(value.item() / math.log(task.num_classes), rel=1e-9)


def test_the_users_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trainer().run()
    assert torch.equal(torch.rand(3), expected)


def test_it_learns_an_lr_that_ends_in_a_lower_loss():
    """A range a hundred times too small: the network has to learn to open up."""
    made = trainer(
        begin=beginning(2.0, low_net()),
        generations=25,
        members=8,
        meta_lr=0.1,
        average=0.5,
        fitness="loss",
    )
    made.run(every=25)
    before, after = made.comparisons[0], made.comparisons[-1]
    assert sum(after.learned) < 0.8 * sum(before.learned)
    assert max(after.lrs) > 3 * max(before.lrs)


def low_net():
    net = first_net()
    with torch.no_grad():
        net.out.bias.fill_(-1.0)  # sigmoid(-4)
    return net


def test_the_schedule_drives_a_training_and_says_how_it_was_made(tmp_path):
    made = trainer(begin=beginning(name="mine", learned_on="blobs"))
    schedule = made.run()
    schedule.save(tmp_path / "mine.safetensors")
    card = Schedule.load(tmp_path / "mine.safetensors").card
    assert (card.name, card.learned_on, card.gamma) == ("mine", "blobs", Fixed(1.0))
    assert "4 generations of 2 tasks with 4 members each, of " in card.description
    assert card.optimizer == "SGD(momentum=0.0, nesterov=False)"
    assert card.results["trainings it was not learned from"]["tasks"] == 3
    assert card.loss_range[0] < 1 < card.loss_range[1]
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = LearnedLR(optimizer, schedule, total_steps=10, num_classes=3)
    scheduler.step(torch.tensor(1.1))
    assert 0 < optimizer.param_groups[0]["lr"] < 1


def test_the_schedule_is_the_average_of_the_generations():
    made = trainer(average=0.0)
    made.step()
    assert torch.equal(weights(made.schedule()), made.weights)
    made = trainer(average=0.5)
    start = made.weights.clone()
    made.step()
    torch.testing.assert_close(weights(made.schedule()), (start + made.weights) / 2)
    made = trainer(average=0.9)
    seen = [made.weights.clone()]
    for _ in range(3):
        made.step()
        seen.append(made.weights.clone())
    torch.testing.assert_close(
        weights(made.schedule()), torch.stack(seen).mean(0)
    )  # 1/2, 2/3, 3/4: all count alike so far


def test_the_meta_optimizers_lr_falls_to_0():
    made, lrs = trainer(generations=6), []
    while made.number < 6:
        made.step()
        lrs.append(made.meta_optimizer.param_groups[0]["lr"])
    assert lrs[0] == made.evolution.meta_lr
    assert lrs == sorted(lrs, reverse=True)
    assert lrs[-1] < 0.1 * made.evolution.meta_lr


def test_a_fitness_of_ones_own_decides():
    seen = []

    def constant(outputs, targets):
        seen.append((outputs.shape, targets.shape))
        return torch.zeros(len(outputs))

    made = trainer(fitness=constant, held_out=0)
    before = made.weights.clone()
    made.step()
    assert seen == [((8, 80, 3), (8, 80))]
    assert torch.equal(made.weights, before)  # no member is better than another


@pytest.mark.parametrize("name", FITNESS)
def test_every_fitness_has_a_name(name):
    assert trainer(fitness=name, held_out=0).step().number == 1


def test_tasks_of_different_shapes_train_one_after_another():
    class Mixed:
        def sample(self, seed, count):
            each = [sampler(horizons=(n, n)).sample(seed, 1)[0] for n in (5, 9, 5)]
            return [*each, *sampler(optimizers=("adam",), horizons=(5, 5)).sample(seed, 1)][:count]

    made = trainer(Mixed(), per_generation=4, held_out=0)
    assert made.step().total_steps == 9
    assert made.run().num_phases == 1


@pytest.mark.parametrize(
    "net", [MLPNet(4, inputs=("loss", "progress")), LSTMNet(4, 2), LSTMNet(3, loss_scale="initial")]
)
def test_any_schedule_network_can_be_learned(net):
    found = trainer(begin=beginning(Gamma(), net), held_out=0, generations=1).run()
    assert found.net.config() == net.config()


def test_half_of_the_members_may_diverge():
    made = trainer(begin=beginning(1e30), held_out=0, generations=2)
    found = made.step()
    assert found.diverged > 0
    assert all(torch.isfinite(weights(made.schedule())))


def test_held_out_tasks_are_no_generations_tasks():
    assert len({task.seed for task in hold_out(sampler(), 8)}) == 8
    asked = []

    class Listening(TaskSampler):
        def sample(self, seed, count):
            asked.append({task.seed for task in super().sample(seed, count)})
            return super().sample(seed, count)

    made = trainer(Listening([DATA], [linear], horizons=(2, 2), val_size=80), generations=20, held_out=8)
    kept_back = set().union(*asked)
    asked.clear()
    made.run(every=20)
    assert len(asked) == 20
    assert len(set().union(*asked)) == 20 * made.tasks.per_generation
    assert not kept_back & set().union(*asked)


def test_a_comparison_is_with_the_best_of_the_grid_on_each_task_and_on_all():
    made = trainer()
    found = made.compare()
    for kind in ("cosine", "linear", "fixed"):
        grid = made.held_out.grids()[kind]
        assert grid.shape == (3, len(made.held_out.grid))
        assert found.oracle[kind] == pytest.approx(grid.min(1).values.tolist())
        assert sum(found.tuned[kind]) == pytest.approx(float(grid.double().sum(0).min()))
    described = made.held_out.describe()
    chosen = described["grid"].index(described["tuned_lr"]["linear"])
    assert [row[chosen] for row in described["fitness"]["linear"]] == pytest.approx(found.tuned["linear"])


def test_hand_designed_schedules_are_those_that_a_user_would_train():
    task = hold_out(sampler(), 1)[0]
    data = task.data.to("cpu", torch.float64)
    task = replace(task, data=data)
    held_out = HeldOut([task], "loss", Compute(precision="fp64"), kinds={"linear": {"warmup": 0.05}}, grid=(0.1, 0.7))
    for peak, found in zip((0.1, 0.7), held_out.grids()["linear"][0].tolist(), strict=True):
        torch.manual_seed(task.seed)
        model, labels = task.model(task.data).double(), task.labels()
        optimizer = torch.optim.SGD(model.parameters(), lr=peak, weight_decay=task.weight_decay)
        mask = torch.where(torch.arange(3) < task.num_classes, 0.0, -torch.inf)
        for factor, index in zip(
            factors("linear", task.total_steps, 1, warmup=0.05), Batches(task).take(task.total_steps)[0], strict=True
        ):
            optimizer.param_groups[0]["lr"] = peak * factor
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(task.data.inputs[index]) + mask, labels[index]).backward()
            optimizer.step()
        val = nn.functional.cross_entropy(model(task.data.inputs[task.val]) + mask, labels[task.val])
        assert found == pytest.approx(val.item(), rel=1e-9)


def test_every_schedule_is_compared_by_its_own_rule():
    tasks = hold_out(sampler(), 2)
    schedules = [beginning(1.0), beginning(0.01)]
    one = HeldOut(tasks, "loss")
    both = [one.compare(0, schedule).learned for schedule in schedules]
    assert both == [HeldOut(tasks, "loss").compare(0, schedule).learned for schedule in schedules]
    assert both[0] != both[1]
    small = Schedule(first_net(4), schedules[0].card)
    assert one.compare(0, small).learned == HeldOut(tasks, "loss").compare(0, small).learned


def test_a_fitness_may_be_negative():
    def accuracy(outputs, targets):
        return -(outputs.argmax(-1) == targets).float().mean(1)

    found = trainer(fitness=accuracy).compare()
    assert min(found.tuned["cosine"]) < -0.6
    assert abs(found.gap()) < 1


def test_gaps_and_wins_are_what_they_say():
    found = Comparison(7, [1.0, 2.0], {"cosine": [1.0, 3.0]}, {"cosine": [1.0, 1.0]}, [0.1])
    assert (found.gap(), found.gap(oracle=True)) == pytest.approx((-0.25, 0.5))
    assert (found.wins(), found.wins(oracle=True)) == (1.0, 0.5)
    assert found.difference() == pytest.approx((-0.5, 0.5))
    assert found.summary()["gap to cosine, the best LR of each task (oracle)"] == 0.5


def test_a_callback_hears_of_every_generation():
    heard = []
    trainer().run(every=3, on_generation=lambda made: heard.append((made.number, len(made.comparisons))))
    assert heard == [(1, 1), (2, 1), (3, 2), (4, 3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 3}, "members must be even, got 3"),
        ({"members": 0}, "members must be a whole number >= 2, got 0"),
        ({"generations": 0}, "generations must be a whole number >= 1, got 0"),
        ({"sigma": 0}, "sigma must be > 0, got 0"),
        ({"meta_lr": -1}, "meta_lr must be > 0, got -1"),
        ({"average": 1}, r"average must be in \[0, 1\), got 1"),
        ({"fitness": "accuracy"}, "fitness must be one of calibrated, loss; got 'accuracy'"),
        ({"precision": "fp8"}, "precision must be one of fp32, fp64; got 'fp8'"),
        ({"held_out": -1}, "held_out must be a whole number >= 0, got -1"),
        ({"sampled": [1]}, r"sampler must be a TaskSampler or have sample\(seed, count\), got \[1\]"),
        ({"fitness": 3}, "fitness must be one of calibrated, loss or a function of outputs and targets, got 3"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        trainer(**changes)


def test_what_a_fitness_or_a_model_returns_is_checked():
    with pytest.raises(ValueError, match=r"fitness must return one number per training, a tensor of shape \(8,\), got"):
        trainer(fitness=lambda outputs, targets: outputs.sum(), held_out=0).step()
    with pytest.raises(ValueError, match=r"model must return 3 outputs for data, .* got 5"):
        trainer(TaskSampler([DATA], [lambda data: nn.Linear(4, 5)], val_size=80), held_out=0).step()

    class Recurrent(nn.LSTM):
        def forward(self, x):
            return super().forward(x.unsqueeze(1))[0][:, -1]

    with pytest.raises(
        RuntimeError, match=r"can batch, got Recurrent \(Batching rule .*write recurrent cells as plain matrix"
    ):
        trainer(TaskSampler([DATA], [lambda data: Recurrent(4, 3, batch_first=True)], val_size=80), held_out=0).step()

    class Nothing:
        def sample(self, seed, count):
            return []

    with pytest.raises(ValueError, match=r"sampler.sample must return at least one Task, got none"):
        trainer(Nothing(), held_out=0).step()


def test_data_of_past_generations_is_forgotten(monkeypatch):
    monkeypatch.setattr("mlrsnet_lab.horizon.pool.MOST_POPULATIONS", 5)

    class Fresh:
        def sample(self, seed, count):
            return TaskSampler([blobs()], [linear], horizons=(2, 2), val_size=80).sample(seed, count)

    made = trainer(Fresh(), generations=8, held_out=0)
    made.run()
    assert len(made.pool.data) == len(made.pool.populations) == 5


def test_comparing_without_held_out_tasks_is_refused():
    with pytest.raises(ValueError, match="held_out of the tasks must be >= 1 to compare, got 0"):
        trainer(held_out=0).compare()


def test_a_meta_training_runs_in_double_precision():
    made = trainer(precision="fp64", generations=1)
    assert made.run().num_phases == 1
    assert all(map(math.isfinite, made.comparisons[-1].learned))
