"""`HorizonTrainer`: learn a schedule from the end of whole trainings.

Algorithm 1 looks one step ahead, and one step ahead a smaller LR tends to be better. Here the network phi that sets
the LRs is judged by what a complete training comes to, on held-out data, by evolution strategies. In generation s:

    for each task k, members i = 1..n:   f_ki = fitness at the end of a training under phi_s + sigma eps_ki
    g = mean over k, i of rank(f_ki) eps_ki / sigma        (ranks within the task; eps antithetic)
    phi_{s+1} = phi_s - Adam(g),     phi_bar = decay phi_bar + (1 - decay) phi_{s+1}

The schedule is phi_bar. Nothing is differentiated through, so nothing has to be remembered: memory is linear in the
members, and the horizon costs time only.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from mlrsnet import _check
from mlrsnet.baselines.hand_designed import Time, cosine
from mlrsnet.card import Card
from mlrsnet.gamma import Gamma
from mlrsnet.horizon import evolution
from mlrsnet.horizon.fitness import Fitness, find_fitness
from mlrsnet.horizon.policies import Networks
from mlrsnet.horizon.pool import Pool
from mlrsnet.horizon.rivals import Comparison, Rivals
from mlrsnet.horizon.seeds import generator, seed_from
from mlrsnet.horizon.tasks import Sampler, Task
from mlrsnet.nets import LSTMNet, ScheduleNet, predict
from mlrsnet.schedule import Schedule

SHARPNESS = 4.0
HELD_OUT_DRAW = 8
"""So many validation tasks share what the tasks of a generation share."""


@dataclass(frozen=True)
class Generation:
    """What a generation came to: the mean fitness of its members, of the better half, and the share that diverged."""

    number: int
    fitness: float
    better_half: float
    diverged: float
    total_steps: int


class HorizonTrainer:
    """Learns one schedule from many short trainings; `step()` is a generation.

    Args:
        tasks: where tasks come from: a `TaskSampler`, or anything with its `sample(seed, count)`.
        generations: how many there will be; the meta-optimizer's LR falls to 0 over them.
        net: the network to begin with, which is copied; an `LSTMNet` that reads loss and progress and anneals if None.
        gamma: how the range of the LR is found; 1, whatever the task, if None.
        tasks_per_generation, members: trainings side by side, members of them, an even number, of each task.
        sigma: size of the perturbations.
        meta_lr: of Adam, at the beginning.
        average: decay of the average over generations that becomes the schedule.
        fitness: `calibrated` (validation loss at the best temperature), `loss`, `error`, or a function of outputs and
            targets; see `fitness.py`.
        held_out: where validation tasks come from, which only measure; `tasks` with other seeds if None.
        held_out_tasks: how many; 0 for no comparison.
        seed: of everything.
        device: where the trainings run.
        precision, capture: see `Population`.
        name, learned_on: for the schedule's card.

    >>> from torch import nn
    >>> from mlrsnet.horizon import Data, HorizonTrainer, TaskSampler
    >>> x = torch.randn(200, 4)
    >>> data = Data(x, (x.sum(1) > 0).long())
    >>> tasks = TaskSampler([data], [lambda data: nn.Linear(4, 2)], horizons=(10, 20), val_size=50)
    >>> trainer = HorizonTrainer(tasks, generations=2, members=4, tasks_per_generation=2, held_out_tasks=0)
    >>> trainer.run().num_phases
    1
    """

    def __init__(
        self,
        tasks: Sampler,
        *,
        generations: int = 150,
        net: ScheduleNet | None = None,
        gamma: Gamma | None = None,
        tasks_per_generation: int = 8,
        members: int = 16,
        sigma: float = 0.1,
        meta_lr: float = 0.03,
        average: float = 0.9,
        fitness: str | Fitness = "calibrated",
        held_out: Sampler | None = None,
        held_out_tasks: int = 8,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        capture: bool = True,
        name: str = "unnamed",
        learned_on: str = "",
    ) -> None:
        for name_of, given in (("tasks", tasks), ("held_out", held_out or tasks)):
            if not callable(getattr(given, "sample", None)):
                raise TypeError(f"{name_of} must be a TaskSampler or have sample(seed, count), got {given!r}")
        self.tasks, self.generations = tasks, _check.whole_number("generations", generations)
        self.tasks_per_generation = _check.whole_number("tasks_per_generation", tasks_per_generation)
        self.members = _check.whole_number("members", members, 2)
        if self.members % 2:
            raise ValueError(f"members must be even, got {members}: each has a mirror image")
        self.sigma, self.meta_lr = _check.positive("sigma", sigma), _check.positive("meta_lr", meta_lr)
        self.average, self.seed = _check.below_one("average", average), _check.whole_number("seed", seed, 0)
        self.fitness = find_fitness(fitness)
        self.precision = _check.one_of("precision", precision, ("fp32", "bf16"))
        self.device, self.card = torch.device(device), Card(name=name, gamma=gamma or Gamma("fixed", value=1.0))
        self.learned_on = learned_on
        self.net = default_net(seed=self.seed) if net is None else copy.deepcopy(net).cpu()
        self.weights = parameters_to_vector(self.net.parameters()).detach().clone()
        self.mean_weights = self.weights.clone()
        self.meta_optimizer = torch.optim.Adam([self.weights], lr=self.meta_lr)
        self.pool: Pool[Networks] = Pool(self._networks, self.device, precision, capture)
        self.loss_range, self.optimizers = (math.inf, -math.inf), set[str]()
        self.history: list[Generation] = []
        self.comparisons: list[Comparison] = []
        self.rivals: Rivals | None = None
        if _check.whole_number("held_out_tasks", held_out_tasks, 0):
            chosen = hold_out(held_out or tasks, held_out_tasks)
            self.rivals = Rivals(chosen, self.fitness, self.device, precision, capture=capture)

    @property
    def number(self) -> int:
        """Generations done."""
        return len(self.history)

    def run(self, every: int = 10, on_generation: Callable[["HorizonTrainer"], Any] | None = None) -> Schedule:
        """All generations that are left, with comparisons before them, every so many and at the end.

        `on_generation` is called after each of them.
        """
        _check.whole_number("every", every)
        if self.rivals is not None and self.number == 0 and not self.comparisons:
            self.compare()  # where it starts from
        while self.number < self.generations:
            self.step()
            if self.rivals is not None and (self.number % every == 0 or self.number == self.generations):
                self.compare()
            if on_generation is not None:
                on_generation(self)
        return self.schedule()

    def step(self) -> Generation:
        """One generation."""
        if self.number >= self.generations:
            raise ValueError(
                f"generations must be above the {self.number} that are done, got {self.generations}: no step left"
            )
        tasks = self.tasks.sample(seed_from("tasks", self.seed, self.number), self.tasks_per_generation)
        if not tasks:
            raise ValueError("tasks.sample must return at least one Task, got none")
        random, pairs = generator("directions", self.seed, self.number), self.members // 2
        eps = torch.stack([evolution.antithetic(pairs, len(self.weights), random) for _ in tasks])
        fitness = self._train(tasks, self.weights + self.sigma * eps)
        self._descend(evolution.gradient(evolution.centred_ranks(fitness), eps, self.sigma))
        self.optimizers |= {str(task.optimizer) for task in tasks}
        self.history.append(_summarise(self.number, fitness, max(task.total_steps for task in tasks)))
        return self.history[-1]

    def compare(self) -> Comparison:
        """The averaged network on the held-out tasks, beside hand-designed schedules."""
        if self.rivals is None:
            raise ValueError("held_out_tasks must be >= 1 to compare, got 0")
        found = self.rivals.compare(self.number, self.schedule())
        self.comparisons.append(found)
        return found

    def schedule(self) -> Schedule:
        """What was learned so far: the averaged network, and a card."""
        net = copy.deepcopy(self.net)
        vector_to_parameters(self.mean_weights, net.parameters())
        results = {"trainings it was not learned from": self.comparisons[-1].summary()} if self.comparisons else {}
        known = math.isfinite(self.loss_range[0]) and self.loss_range[0] < self.loss_range[1]
        horizons = [line.total_steps for line in self.history]
        steps = f", of up to {max(horizons)} steps" if horizons else ""
        card = replace(
            self.card,
            description=(
                f"Learned from the end of whole trainings (evolution strategies): {self.number} generations of "
                f"{self.tasks_per_generation} tasks with {self.members} members each{steps}."
            ),
            learned_on=self.learned_on,
            optimizer="; ".join(sorted(self.optimizers)),
            loss_range=self.loss_range if known else None,
            results=results,
        )
        return Schedule(net, card)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next generation depends on, as copies."""
        return {
            "weights": self.weights.clone(),
            "mean_weights": self.mean_weights.clone(),
            "meta_optimizer": copy.deepcopy(self.meta_optimizer.state_dict()),
            "loss_range": list(self.loss_range),
            "optimizers": sorted(self.optimizers),
            "history": [asdict(line) for line in self.history],
            "comparisons": [asdict(line) for line in self.comparisons],
            "settings": self._settings(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; a trainer of other settings is refused."""
        if not isinstance(state, dict) or "settings" not in state:
            raise ValueError("state must be what state_dict() of a HorizonTrainer returned, got something else")
        different = [name for name, value in self._settings().items() if state["settings"].get(name) != value]
        if different:
            told = ", ".join(f"{name} {state['settings'].get(name)!r}" for name in different)
            raise ValueError(f"the state belongs to a trainer with {told}: make this one with the same settings")
        self.weights.copy_(state["weights"])
        self.mean_weights.copy_(state["mean_weights"])
        self.meta_optimizer.load_state_dict(state["meta_optimizer"])
        self.loss_range, self.optimizers = tuple(state["loss_range"]), set(state["optimizers"])
        self.history = [Generation(**line) for line in state["history"]]
        self.comparisons = [Comparison(**line) for line in state["comparisons"]]

    def _train(self, tasks: Sequence[Task], weights: Tensor) -> Tensor:
        """(tasks, members) the fitness of whole trainings under networks of these weights (tasks, members, size)."""

        def prepare(policy: Networks, indices: list[int]) -> None:
            policy.set_weights(weights[indices].flatten(0, 1).to(self.device))

        fitness = torch.empty(weights.shape[:2])
        for indices, policy, trained in self.pool.train(tasks, self.members, self.fitness, prepare):
            fitness[indices] = trained.fitness.view(len(indices), -1).float().cpu()
            better = trained.fitness <= trained.fitness.nanmedian()
            self._note_range((trained.losses / policy.divisors().unsqueeze(1))[better])
        return fitness

    def _settings(self) -> dict[str, Any]:
        names = ("generations", "tasks_per_generation", "members", "sigma", "meta_lr", "average", "seed", "precision")
        held_out = [[task.seed, task.total_steps] for task in self.rivals.tasks] if self.rivals else []
        return {
            "net": self.net.config(),
            "gamma": self.card.to_dict()["gamma"],
            "fitness": getattr(self.fitness, "__qualname__", type(self.fitness).__qualname__),
            "held_out": held_out,
            **{name: getattr(self, name) for name in names},
        }

    def _networks(self, members: int) -> Networks:
        return Networks(Schedule(self.net, self.card), members, self.device)

    def _descend(self, gradient: Tensor) -> None:
        """Adam, its LR falling by a half cosine, then the average, which forgets the first generations."""
        for group in self.meta_optimizer.param_groups:
            group["lr"] = self.meta_lr * cosine(Time(self.number, self.generations, 1))
        self.weights.grad = gradient
        self.meta_optimizer.step()
        decay = min(self.average, (self.number + 1) / (self.number + 2))
        self.mean_weights.lerp_(self.weights, 1 - decay)

    def _note_range(self, scaled: Tensor) -> None:
        """The losses that the better members saw, without a few."""
        thinned = scaled.flatten()[:: max(1, scaled.numel() // 10_000)]
        finite = thinned[torch.isfinite(thinned)].cpu()
        if len(finite):
            low, high = finite.quantile(torch.tensor([0.001, 0.99])).tolist()
            self.loss_range = (min(self.loss_range[0], low), max(self.loss_range[1], high))


def default_net(
    hidden_size: int = 50,
    *,
    anneal: str = "linear",
    start: float | None = None,
    seed: int = 0,
    kind: type[LSTMNet] = LSTMNet,
) -> LSTMNet:
    """The paper's cell, reading loss / log(classes) and progress: p = sigmoid(4 z) (1 - u).

    It begins with z near 0, or such that the first p of an untrained classifier is `start`. Without `anneal`, p = sigmoid(4 z): it
    begins as a fixed LR, and has to learn to anneal. A `TrendNet` reads the trend of the loss too.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = kind(
            hidden_size, inputs=("loss", "progress"), loss_scale="log_classes", sharpness=SHARPNESS, anneal=anneal
        )
    if start is not None:
        if not 0 < _check.real("start", start) < 1:
            raise ValueError(f"start must be in (0, 1), a part of the range, got {start!r}")
        with torch.no_grad():
            first, _ = predict(net, torch.ones(()), 0.0, net.initial_state())
            net.out.bias.add_((math.log(start / (1 - start)) - torch.logit(first)) / SHARPNESS)
    return net


def hold_out(tasks: Sampler, count: int) -> list[Task]:
    """Tasks that no generation sees, the same for every trainer of a distribution."""
    draws = range(0, count, HELD_OUT_DRAW)
    return [
        task
        for first in draws
        for task in tasks.sample(seed_from("held out", first), min(HELD_OUT_DRAW, count - first))
    ]


def _summarise(number: int, fitness: Tensor, total_steps: int) -> Generation:
    finite = torch.isfinite(fitness)
    values = fitness[finite]
    half = fitness.nan_to_num(nan=math.inf).sort(dim=1).values[:, : fitness.shape[1] // 2]
    return Generation(
        number=number + 1,
        fitness=float(values.mean()) if len(values) else math.inf,
        better_half=float(half.mean()),
        diverged=float((~finite).float().mean()),
        total_steps=total_steps,
    )
