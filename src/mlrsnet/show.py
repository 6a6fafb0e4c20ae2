"""A schedule in words, for the terminal."""

from mlrsnet.card import facts, result_lines
from mlrsnet.schedule import Schedule

WIDTH = 12


def describe(schedule: Schedule) -> str:
    """The card, one field a line; empty fields are left out.

    >>> from mlrsnet import LSTMNet, Schedule
    >>> print(describe(Schedule(LSTMNet())).splitlines()[0])
    name         unnamed
    """
    card = schedule.card
    fields = {
        "name": card.name,
        "description": card.description,
        **facts(card, schedule.net.config(), schedule.num_phases),
        "loss range": f"{card.loss_range[0]:g} to {card.loss_range[1]:g}" if card.loss_range else "",
        "results": f"\n{'':{WIDTH + 1}}".join(result_lines(card.results)),
        "digest": schedule.fingerprint()[:16],
    }
    return "\n".join(f"{name:{WIDTH}} {value}" for name, value in fields.items() if value)
