"""The `HorizonTrainer` that a spec describes."""

from dataclasses import fields
from pathlib import Path

import torch

from mlrsnet.card import Card
from mlrsnet.nets import ScheduleNet
from mlrsnet.ranges import Fixed, Range
from mlrsnet.schedule import Schedule
from mlrsnet_lab.distributions import inner_tasks
from mlrsnet_lab.horizon import Compute, Evolution, HorizonTrainer, Sampler, Tasks
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.kinds import FAMILIES, KindSampler
from mlrsnet_lab.meta_specs import KINDS, NETWORKS, UNIVERSAL, HorizonSpec
from mlrsnet_lab.universal import distribution


def build(spec: HorizonSpec, device: torch.device, root: Path | None = None) -> HorizonTrainer:
    """The trainer that a spec describes."""
    sampler, measured_on = _samplers(spec, root)
    options = f", {spec.task_options}" if spec.task_options else ""
    (net, gamma), on = _begin(spec), f"small trainings on {spec.task}{options}, seed {spec.seed}"
    evolution = Evolution(**{item.name: getattr(spec, item.name) for item in fields(Evolution)})
    tasks = Tasks(sampler, spec.tasks, spec.together, spec.fitness, spec.held_out, measured_on)
    return HorizonTrainer(tasks, Schedule(net, Card(spec.name, learned_on=on, gamma=gamma)), evolution, Compute(device))


def _begin(spec: HorizonSpec) -> tuple[ScheduleNet, Range]:
    """The network to start from, and the range of its LRs."""
    if not spec.begin:
        kind = NETWORKS[spec.network]
        net = first_net(spec.hidden, anneal=spec.anneal, start=spec.start, seed=spec.seed, kind=kind)
        return net, Fixed(spec.gamma)
    schedule = Schedule.load(spec.begin)
    if not isinstance(schedule, Schedule):
        raise ValueError(
            f"begin must be a schedule with a network to go on from, got {spec.begin!r}, which is an equation"
        )
    return schedule.net, schedule.card.gamma


def _samplers(spec: HorizonSpec, root: Path | None) -> tuple[Sampler, Sampler | None]:
    """Tasks to learn from, and tasks to measure on where these come from elsewhere."""
    if spec.task == UNIVERSAL:
        return distribution(root)
    if spec.task == KINDS:
        options = spec.task_options
        horizons = tuple(options.get("horizons", KindSampler.horizons))
        return KindSampler(horizons, options.get("families", FAMILIES), root), None
    other = spec.held_out_options
    held_out = None if other is None else inner_tasks(spec.task, root, **other)
    return inner_tasks(spec.task, root, **spec.task_options), held_out
