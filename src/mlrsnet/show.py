"""A schedule in words, for the terminal."""

from mlrsnet.schedule import Schedule


def describe(schedule: Schedule) -> str:
    """The card, one field a line; empty fields are left out.

    >>> from mlrsnet import LSTMNet, Schedule
    >>> print(describe(Schedule(LSTMNet())).splitlines()[0])
    name         unnamed
    """
    card, net = schedule.card, schedule.net.config()
    gamma = card.gamma
    kind = net.pop("kind")
    fields = {
        "name": card.name,
        "description": card.description,
        "learned on": card.learned_on or "nothing: untrained",
        "optimizer": card.optimizer,
        "horizon": f"{card.total_steps} steps" if card.total_steps else "",
        "phases": schedule.num_phases,
        "network": f"{kind}({', '.join(f'{key}={value}' for key, value in net.items())})",
        "range": f"gamma {gamma.policy}" + (f" {gamma.value:g}" if gamma.value else f", from the {gamma.statistic}"),
        "loss range": f"{card.loss_range[0]:g} to {card.loss_range[1]:g}" if card.loss_range else "",
        "results": "; ".join(f"{task}: {value}" for task, value in card.results.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
        "digest": schedule.fingerprint()[:16],
    }
    return "\n".join(f"{name:12} {value}" for name, value in fields.items() if value)
