"""The `HorizonTrainer` that a spec describes."""

from pathlib import Path

import torch

from mlrsnet.gamma import Gamma
from mlrsnet.horizon import HorizonTrainer, Sampler
from mlrsnet.horizon.trainer import default_net
from mlrsnet.lab.distributions import inner_tasks
from mlrsnet.lab.meta_specs import NETWORKS, TABLE, UNIVERSAL, HorizonSpec
from mlrsnet.lab.table.kinds import FAMILIES
from mlrsnet.lab.table.sampler import KindSampler
from mlrsnet.lab.universal import distribution
from mlrsnet.nets import DecayNet, ReadingNet, ScheduleNet
from mlrsnet.schedule import Schedule


def build(spec: HorizonSpec, device: torch.device, root: Path | None = None) -> HorizonTrainer:
    """The trainer that a spec describes."""
    sampler, held_out = _samplers(spec, root)
    options = f", {spec.task_options}" if spec.task_options else ""
    net, gamma = _begin(spec)
    return HorizonTrainer(
        sampler,
        generations=spec.generations,
        net=net,
        gamma=gamma,
        average=spec.average,
        tasks_per_generation=spec.tasks,
        members=spec.members,
        sigma=spec.sigma,
        meta_lr=spec.meta_lr,
        utility=spec.utility,
        fitness=spec.fitness,
        together=spec.together,
        held_out=held_out,
        held_out_tasks=spec.held_out,
        seed=spec.seed,
        device=device,
        name=spec.name,
        learned_on=f"small trainings on {spec.task}{options}, seed {spec.seed}",
    )


def _begin(spec: HorizonSpec) -> tuple[ScheduleNet, Gamma]:
    """The network to start from, and the range of its LRs."""
    if spec.begin is None:
        gamma = Gamma("relative" if spec.relative else "fixed", value=spec.gamma)
        kind = NETWORKS[spec.network]
        return default_net(spec.hidden, anneal=spec.anneal, start=spec.start, seed=spec.seed, kind=kind), gamma
    schedule = Schedule.load(spec.begin)
    if type(schedule.net) is not DecayNet:
        return schedule.net, schedule.card.gamma
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(spec.seed)
        return ReadingNet(*schedule.net.powers.tolist()), schedule.card.gamma


def _samplers(spec: HorizonSpec, root: Path | None) -> tuple[Sampler, Sampler | None]:
    """Tasks to learn from, and tasks to measure on where these come from elsewhere."""
    if spec.task == UNIVERSAL:
        return distribution(root)
    if spec.task == TABLE:
        options = spec.task_options
        horizons = tuple(options.get("horizons", KindSampler.horizons))
        return KindSampler(horizons, options.get("families", FAMILIES), root), None
    other = spec.held_out_options
    held_out = None if other is None else inner_tasks(spec.task, root, **other)
    return inner_tasks(spec.task, root, **spec.task_options), held_out
