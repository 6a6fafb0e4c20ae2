"""`HorizonTrainer`: learn a schedule from the end of whole trainings, by evolution strategies.

Algorithm 1 of the paper looks one step ahead, and one step ahead a smaller LR tends to look better. Here the network phi
that sets the LRs is judged on held-out data after a complete training. In generation s:

    for each task k, members i = 1..n:   f_ki = fitness at the end of a training under phi_s + sigma eps_ki
    g = mean over k, i of u(f_ki) eps_ki / sigma           (u: ranks within the task; eps antithetic)
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

from mlrsnet.baselines import Time, cosine
from mlrsnet.card import Card
from mlrsnet.files.untrusted import reason
from mlrsnet.ranges import Fixed
from mlrsnet.schedule import Schedule
from mlrsnet_lab import checks
from mlrsnet_lab.horizon.comparison import Comparison, HeldOut, hold_out
from mlrsnet_lab.horizon.compute import Compute
from mlrsnet_lab.horizon.evolution import Evolution, Generation, antithetic, centred_ranks, gradient, summarise
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.horizon.judging import NO_LOSSES, Helpers, Judged, judged, widened
from mlrsnet_lab.horizon.policies import Networks
from mlrsnet_lab.horizon.pool import Pool, grouped
from mlrsnet_lab.horizon.seeds import generator, seed_from
from mlrsnet_lab.horizon.task import Task
from mlrsnet_lab.horizon.tasks import Tasks


class HorizonTrainer:
    """Learns one schedule from many short trainings. `step()` is one generation, `run()` all of them.

    Args:
        tasks: what it learns from, and what it is measured on.
        begin: the schedule to start as, with the name that the learned one gets; `first_net()` with a range of 1 if None.
        evolution: how it learns.
        where: and how the trainings run.

    >>> from torch import nn
    >>> from mlrsnet_lab.horizon import Data, Evolution, HorizonTrainer, Tasks, TaskSampler
    >>> x = torch.randn(200, 4)
    >>> data = Data(x, (x.sum(1) > 0).long())
    >>> sampler = TaskSampler([data], [lambda data: nn.Linear(4, 2)], horizons=(10, 20), val_size=50)
    >>> trainer = HorizonTrainer(Tasks(sampler, per_generation=2, held_out=0), evolution=Evolution(generations=2, members=4))
    >>> trainer.run().num_phases
    1
    """

    def __init__(
        self,
        tasks: Tasks,
        begin: Schedule | None = None,
        evolution: Evolution | None = None,
        where: Compute | None = None,
    ) -> None:
        self.tasks, self.evolution, self.where = tasks, evolution or Evolution(), where or Compute()
        self.begin = begin or Schedule(first_net(seed=self.evolution.seed), Card(gamma=Fixed(1.0)))
        self.weights = parameters_to_vector(self.begin.net.parameters()).detach().clone()
        self.mean_weights = self.weights.clone()
        self.meta_optimizer = torch.optim.Adam([self.weights], lr=self.evolution.meta_lr)
        self.pool: Pool[Networks] = Pool(self._networks, self.where)
        self.loss_range, self.optimizers = NO_LOSSES, set[str]()
        self.history: list[Generation] = []
        self.comparisons: list[Comparison] = []
        self.helpers: Helpers | None = None
        self._drawn: tuple[int, list[Task], Tensor] | None = None
        self.held_out: HeldOut | None = None
        if tasks.held_out:
            chosen = hold_out(tasks.measured_on or tasks.sampler, tasks.held_out)
            self.held_out = HeldOut(chosen, tasks.fitness, self.where)

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
        checks.whole_number("every", every)
        if self.held_out is not None and self.number == 0 and not self.comparisons:
            self.compare()
        while self.number < self.evolution.generations:
            self.step()
            if self.held_out is not None and (self.number % every == 0 or self.number == self.evolution.generations):
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
        if self.number >= self.evolution.generations:
            raise ValueError(
                f"generations must be above the {self.number} that are done, got {self.evolution.generations}: no step left"
            )
        return grouped(self._draw()[0], self.tasks.together)

    def judge(self, groups: Sequence[Sequence[int]]) -> Iterator[Judged]:
        """Train some groups of the next generation; yields each as it finishes."""
        tasks, eps = self._draw()
        for group in groups:
            if any(not 0 <= index < len(tasks) for index in group):
                raise ValueError(f"groups must be some of groups(), got {list(group)} for {len(tasks)} tasks")
        values = {index: self.weights + self.evolution.sigma * eps[index] for group in groups for index in group}
        yield from map(judged, self.pool.train_groups(groups, tasks, values, self.tasks.judge))

    def finish(self, found: Iterable[Judged]) -> Generation:
        """End the generation: learn from what came out of all its groups, in any order."""
        tasks, eps = self._draw()
        fitness, left = torch.empty(eps.shape[:2], dtype=self.where.dtype), set(range(len(tasks)))
        for one in found:
            fitness[one.indices] = one.fitness.to(fitness)
            self.loss_range, left = widened(self.loss_range, one.loss_range), left - set(one.indices)
        if left:
            raise ValueError(f"found must hold every group of the generation, the tasks {sorted(left)} are missing")
        self._descend(gradient(centred_ranks(fitness), eps, self.evolution.sigma))
        self.optimizers |= {str(task.optimizer) for task in tasks}
        self.history.append(summarise(self.number + 1, fitness, max(task.total_steps for task in tasks)))
        return self.history[-1]

    def compare(self) -> Comparison:
        """Compare the averaged network with hand-designed schedules on the held-out tasks."""
        if self.held_out is None:
            raise ValueError("held_out of the tasks must be >= 1 to compare, got 0")
        helpers, here = self.helpers, self.held_out
        found = here.compare(self.number, self.schedule()) if helpers is None else helpers.compare(self)
        self.comparisons.append(found)
        return found

    def schedule(self) -> Schedule:
        """The schedule learned so far: the averaged network, and a card."""
        net = copy.deepcopy(self.begin.net)
        vector_to_parameters(self.mean_weights, net.parameters())
        results = {"trainings it was not learned from": self.comparisons[-1].summary()} if self.comparisons else {}
        has_range = math.isfinite(self.loss_range[0]) and self.loss_range[0] < self.loss_range[1]
        lengths = [generation.total_steps for generation in self.history]
        up_to = f", of up to {max(lengths)} steps" if lengths else ""
        card = replace(
            self.begin.card,
            description=(
                f"Learned from the end of whole trainings (evolution strategies): {self.number} generations of "
                f"{self.tasks.per_generation} tasks with {self.evolution.members} members each{up_to}."
            ),
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
        kept = state["settings"]
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
            seed = self.evolution.seed
            tasks = self.tasks.sampler.sample(seed_from("tasks", seed, self.number), self.tasks.per_generation)
            if not tasks:
                raise ValueError("sampler.sample must return at least one Task, got none")
            random, pairs = generator("directions", seed, self.number), self.evolution.members // 2
            eps = torch.stack([antithetic(pairs, len(self.weights), random) for _ in tasks])
            self._drawn = self.number, tasks, eps
        return self._drawn[1:]

    def _settings(self) -> dict[str, Any]:
        held_out = [[task.seed, task.total_steps] for task in self.held_out.tasks] if self.held_out else []
        return {
            "net": self.begin.net.config(),
            "gamma": self.begin.card.gamma.to_dict(),
            "fitness": getattr(self.tasks.judge, "__qualname__", type(self.tasks.judge).__qualname__),
            "held_out": held_out,
            "per_generation": self.tasks.per_generation,
            "together": self.tasks.together,
            "precision": self.where.precision,
            **asdict(self.evolution),
        }

    def _networks(self, trainings: int) -> Networks:
        return Networks(self.begin, trainings, self.where.device, self.where.dtype)

    def _descend(self, gradient: Tensor) -> None:
        """A step of Adam, whose LR falls along a half cosine, then the average.

        The average weighs all generations alike until there are enough of them for its decay.
        """
        for group in self.meta_optimizer.param_groups:
            group["lr"] = self.evolution.meta_lr * cosine(Time(self.number, self.evolution.generations, 1))
        self.weights.grad = gradient
        self.meta_optimizer.step()
        decay = min(self.evolution.average, (self.number + 1) / (self.number + 2))
        self.mean_weights.lerp_(self.weights, 1 - decay)
