"""A schedule in words, for the terminal."""

from typing import Any

from mlrsnet.schedule import Schedule

WIDTH = 12


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
        "results": f"\n{'':{WIDTH + 1}}".join(_lines(card.results)),
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
        "digest": schedule.fingerprint()[:16],
    }
    return "\n".join(f"{name:{WIDTH}} {value}" for name, value in fields.items() if value)


def _lines(results: dict[str, Any]) -> list[str]:
    """One line a result; what belongs together is indented under its name.

    >>> _lines({"digits": {"test": 97.5, "validation": 98}, "patches": 0.72})
    ['digits:', '  test: 97.5', '  validation: 98', 'patches: 0.72']
    """
    lines = []
    for name, value in results.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {line}" for line in _lines(value))]
        else:
            lines.append(f"{name}: {value}")
    return lines
