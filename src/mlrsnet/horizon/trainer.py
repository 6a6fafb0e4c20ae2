"""`HorizonTrainer`: learn a schedule from the end of whole trainings, by evolution strategies.

Algorithm 1 of the paper looks one step ahead, and one step ahead a smaller LR tends to look better. Here the network phi
that sets the LRs is judged on held-out data after a complete training. In generation s:

    for each task k, members i = 1..n:   f_ki = fitness at the end of a training under phi_s + sigma eps_ki
    g = mean over k, i of u(f_ki) eps_ki / sigma           (u: ranks or gaps within the task; eps antithetic)
    phi_{s+1} = phi_s - Adam(g),     phi_bar = decay phi_bar + (1 - decay) phi_{s+1}

The schedule is phi_bar. No gradient goes through the trainings, so nothing is stored for one: memory grows with the
members, and the number of steps costs only time.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from mlrsnet import _check
from mlrsnet._files.untrusted import reason
from mlrsnet.baselines.hand_designed import Time, cosine
from mlrsnet.card import Card
from mlrsnet.gamma import Gamma
from mlrsnet.horizon import evolution
from mlrsnet.horizon.comparison import Comparison, HeldOut, hold_out
from mlrsnet.horizon.default_net import default_net
from mlrsnet.horizon.fitness import Fitness, find_fitness
from mlrsnet.horizon.generation import Generation, summarise
from mlrsnet.horizon.judging import NO_LOSSES, Helpers, Judged, judged, widened
from mlrsnet.horizon.policies import Networks
from mlrsnet.horizon.pool import Pool, grouped
from mlrsnet.horizon.precision import float_type
from mlrsnet.horizon.sampler import Sampler
from mlrsnet.horizon.seeds import generator, seed_from
from mlrsnet.horizon.task import Task
from mlrsnet.nets import ScheduleNet
from mlrsnet.schedule import Schedule

SETTINGS = (
    "generations",
    "tasks_per_generation",
    "members",
    "sigma",
    "meta_lr",
    "utility",
    "average",
    "seed",
    "precision",
    "together",
)
"""What has to be equal for a trainer to load another one's state, beside network, range, fitness and held-out tasks."""


class HorizonTrainer:
    """Learns one schedule from many short trainings. `step()` is one generation, `run()` all of them.

    Args:
        tasks: a `TaskSampler`, or anything with its `sample(seed, count)`.
        generations: how many there will be. The LR of the meta-optimizer falls to 0 over them.
        net: the network to start from, which is copied; `default_net()` if None.
        gamma: how the range of the LR is found; 1 for every task if None.
        tasks_per_generation: how many tasks a generation trains.
        members: trainings per task, an even number.
        sigma: size of the perturbations.
        meta_lr: LR of Adam at the start.
        utility: `ranks`, or `gaps`, which see the size of a failure; see `evolution`.
        average: decay of the average over generations that becomes the schedule.
        fitness: `calibrated` (validation loss at the best temperature), `loss`, `error`, or a function of outputs and
            targets; see `fitness.py`.
        together: how many tasks of a generation train side by side at most; 0 for all that can. See `groups`.
        held_out: a sampler of tasks that only measure; `tasks` under other seeds if None.
        held_out_tasks: how many of them; 0 for no comparison.
        seed: of everything random.
        device: where the trainings run.
        precision: `fp32`, `bf16` (autocast) or `fp64`.
        capture: capture the step in a CUDA graph; see `Population`.
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
        utility: str = "ranks",
        average: float = 0.9,
        fitness: str | Fitness = "calibrated",
        together: int = 0,
        held_out: Sampler | None = None,
        held_out_tasks: int = 8,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        capture: bool = True,
        name: str = "unnamed",
        learned_on: str = "",
    ) -> None:
        _check_sampler("tasks", tasks)
        _check_sampler("held_out", held_out or tasks)
        self.tasks, self.generations = tasks, _check.whole_number("generations", generations)
        self.tasks_per_generation = _check.whole_number("tasks_per_generation", tasks_per_generation)
        self.members = _check.whole_number("members", members, 2)
        if self.members % 2:
            raise ValueError(f"members must be even, got {members}: perturbations come in pairs")
        self.sigma, self.meta_lr = _check.positive("sigma", sigma), _check.positive("meta_lr", meta_lr)
        self.utility = _check.one_of("utility", utility, evolution.UTILITIES)
        self.average, self.seed = _check.below_one("average", average), _check.whole_number("seed", seed, 0)
        self.fitness, self.precision, self.dtype = find_fitness(fitness), precision, float_type(precision)
        self.together = _check.whole_number("together", together, 0)
        self.device, self.card = torch.device(device), Card(name=name, gamma=gamma or Gamma("fixed", value=1.0))
        self.learned_on = learned_on
        self.net = default_net(seed=self.seed) if net is None else copy.deepcopy(net).cpu()
        self.weights = parameters_to_vector(self.net.parameters()).detach().clone()
        self.mean_weights = self.weights.clone()
        self.meta_optimizer = torch.optim.Adam([self.weights], lr=self.meta_lr)
        self.pool: Pool[Networks] = Pool(self._networks, self.device, precision, capture)
        self.loss_range, self.optimizers = NO_LOSSES, set[str]()
        self.history: list[Generation] = []
        self.comparisons: list[Comparison] = []
        self.helpers: Helpers | None = None
        self._drawn: tuple[int, list[Task], Tensor] | None = None
        self.held_out: HeldOut | None = None
        if _check.whole_number("held_out_tasks", held_out_tasks, 0):
            chosen = hold_out(held_out or tasks, held_out_tasks)
            self.held_out = HeldOut(chosen, self.fitness, self.device, precision, capture=capture)

    @property
    def number(self) -> int:
        """The number of generations done."""
        return len(self.history)

    def run(self, every: int = 10, on_generation: Callable[["HorizonTrainer"], Any] | None = None) -> Schedule:
        """Run the generations that are left and return the schedule.

        Args:
            every: compare after this many generations, and before the first and after the last one.
            on_generation: called with the trainer after each generation.
        """
        _check.whole_number("every", every)
        if self.held_out is not None and self.number == 0 and not self.comparisons:
            self.compare()
        while self.number < self.generations:
            self.step()
            if self.held_out is not None and (self.number % every == 0 or self.number == self.generations):
                self.compare()
            if on_generation is not None:
                on_generation(self)
        return self.schedule()

    def step(self) -> Generation:
        """Run one generation, with the helpers if there are any."""
        return self.finish(self.judge(self.groups()) if self.helpers is None else self.helpers.judge(self))

    def next_tasks(self) -> list[Task]:
        """The tasks of the next generation."""
        return list(self._draw()[0])

    def groups(self) -> list[list[int]]:
        """The tasks of the next generation that train side by side, by their indices.

        What comes out of a group does not depend on which process trains it, or on the other groups.
        """
        if self.number >= self.generations:
            raise ValueError(
                f"generations must be above the {self.number} that are done, got {self.generations}: no step left"
            )
        return grouped(self._draw()[0], self.together)

    def judge(self, groups: Sequence[Sequence[int]]) -> Iterator[Judged]:
        """Train some groups of the next generation; yields each as it finishes."""
        tasks, eps = self._draw()
        for group in groups:
            if any(not 0 <= index < len(tasks) for index in group):
                raise ValueError(f"groups must be some of groups(), got {list(group)} for {len(tasks)} tasks")
        yield from judged(self.pool, tasks, self.weights, self.sigma, eps, groups, self.fitness)

    def finish(self, found: Iterable[Judged]) -> Generation:
        """End the generation: learn from what came out of all its groups, in any order."""
        tasks, eps = self._draw()
        fitness, left = torch.empty(eps.shape[:2], dtype=self.dtype), set(range(len(tasks)))
        for one in found:
            fitness[one.indices] = one.fitness.to(fitness)
            self.loss_range, left = widened(self.loss_range, one.loss_range), left - set(one.indices)
        if left:
            raise ValueError(f"found must hold every group of the generation, the tasks {sorted(left)} are missing")
        self._descend(evolution.gradient(evolution.UTILITIES[self.utility](fitness), eps, self.sigma))
        self.optimizers |= {str(task.optimizer) for task in tasks}
        self.history.append(summarise(self.number + 1, fitness, max(task.total_steps for task in tasks)))
        return self.history[-1]

    def compare(self) -> Comparison:
        """Compare the averaged network with hand-designed schedules on the held-out tasks."""
        if self.held_out is None:
            raise ValueError("held_out_tasks must be >= 1 to compare, got 0")
        helpers, here = self.helpers, self.held_out
        found = here.compare(self.number, self.schedule()) if helpers is None else helpers.compare(self)
        self.comparisons.append(found)
        return found

    def schedule(self) -> Schedule:
        """The schedule learned so far: the averaged network, and a card."""
        net = copy.deepcopy(self.net)
        vector_to_parameters(self.mean_weights, net.parameters())
        results = {"trainings it was not learned from": self.comparisons[-1].summary()} if self.comparisons else {}
        has_range = math.isfinite(self.loss_range[0]) and self.loss_range[0] < self.loss_range[1]
        lengths = [generation.total_steps for generation in self.history]
        up_to = f", of up to {max(lengths)} steps" if lengths else ""
        card = replace(
            self.card,
            description=(
                f"Learned from the end of whole trainings (evolution strategies): {self.number} generations of "
                f"{self.tasks_per_generation} tasks with {self.members} members each{up_to}."
            ),
            learned_on=self.learned_on,
            optimizer="; ".join(sorted(self.optimizers)),
            loss_range=self.loss_range if has_range else None,
            results=results,
        )
        return Schedule(net, card)

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything the next generation depends on."""
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
        """Continue from a state of a trainer with the same settings."""
        if not isinstance(state, dict) or not isinstance(state.get("settings"), dict):
            raise ValueError("state must be what state_dict() of a HorizonTrainer returned, got something else")
        kept = {"utility": "ranks", "together": 0, **state["settings"]}  # older states do not name them
        different = [name for name, value in self._settings().items() if kept.get(name) != value]
        if different:
            theirs = ", ".join(f"{name} {kept.get(name)!r}" for name in different)
            raise ValueError(f"the state belongs to a trainer with {theirs}: make this one with the same settings")
        try:
            self._restore(state)
        except (LookupError, TypeError, AttributeError, RuntimeError) as error:
            raise ValueError(f"state must be what state_dict() returned, got a damaged one ({reason(error)})") from None

    def _restore(self, state: dict[str, Any]) -> None:
        history = [Generation(**line) for line in state["history"]]
        comparisons = [Comparison(**line) for line in state["comparisons"]]
        low, high = map(float, state["loss_range"])
        self.weights.copy_(state["weights"])
        self.mean_weights.copy_(state["mean_weights"])
        self.meta_optimizer.load_state_dict(state["meta_optimizer"])
        self.loss_range, self.optimizers = (low, high), set(state["optimizers"])
        self.history, self.comparisons = history, comparisons

    def _draw(self) -> tuple[list[Task], Tensor]:
        """The tasks of the next generation and their directions (tasks, members, size), from seeds alone."""
        if self._drawn is None or self._drawn[0] != self.number:
            tasks = self.tasks.sample(seed_from("tasks", self.seed, self.number), self.tasks_per_generation)
            if not tasks:
                raise ValueError("tasks.sample must return at least one Task, got none")
            random, pairs = generator("directions", self.seed, self.number), self.members // 2
            eps = torch.stack([evolution.antithetic(pairs, len(self.weights), random) for _ in tasks])
            self._drawn = self.number, tasks, eps
        return self._drawn[1:]

    def _settings(self) -> dict[str, Any]:
        held_out = [[task.seed, task.total_steps] for task in self.held_out.tasks] if self.held_out else []
        return {
            "net": self.net.config(),
            "gamma": self.card.to_dict()["gamma"],
            "fitness": getattr(self.fitness, "__qualname__", type(self.fitness).__qualname__),
            "held_out": held_out,
            **{name: getattr(self, name) for name in SETTINGS},
        }

    def _networks(self, trainings: int) -> Networks:
        return Networks(Schedule(self.net, self.card), trainings, self.device, dtype=self.dtype)

    def _descend(self, gradient: Tensor) -> None:
        """A step of Adam, whose LR falls along a half cosine, then the average.

        The average weighs all generations alike until there are enough of them for its decay.
        """
        for group in self.meta_optimizer.param_groups:
            group["lr"] = self.meta_lr * cosine(Time(self.number, self.generations, 1))
        self.weights.grad = gradient
        self.meta_optimizer.step()
        decay = min(self.average, (self.number + 1) / (self.number + 2))
        self.mean_weights.lerp_(self.weights, 1 - decay)


def _check_sampler(name: str, sampler: Sampler) -> None:
    if not callable(getattr(sampler, "sample", None)):
        raise TypeError(f"{name} must be a TaskSampler or have sample(seed, count), got {sampler!r}")
