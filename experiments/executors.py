"""What executors cost: a second worker, and a piece of work."""

from typing import Any

from experiments import markdown, results

LOADS = {
    "campaign": "runs of a campaign (digits, small CNN, 10 epochs)",
    "generation": "generations (8 tasks x 8 members)",
}


def table() -> list[str]:
    """Speed-up with two workers, and what a piece of work costs."""
    here = results.data("executors/cpu.json")
    lines = [
        [
            words,
            f"{here['records_per_second'][load]['ray_1']:.2f}",
            f"{here['records_per_second'][load]['ray_2']:.2f}",
            f"{here['two_workers_over_one'][load]['ray']:.2f}",
            f"{here['two_workers_over_one'][load]['processes']:.2f}",
            f"{here['cpu_of_two_workers_over_one'][load]['ray']:.2f}",
            f"{2 / here['cpu_of_two_workers_over_one'][load]['ray']:.2f}",
        ]
        for load, words in LOADS.items()
    ]
    heads = ["per second", "Ray, 1 worker", "Ray, 2 workers", "speed-up", "speed-up of `--jobs 2`"]
    heads += ["CPU time, 2 workers / 1", "2 / that: the most on idle cores"]
    load = here["load"]
    costs: list[list[str]] = [
        ["a piece of work that does nothing, Ray, 2 workers", f"{here['ms_per_call']['ray_2']:.1f} ms"],
        ["the same with `--jobs 2`", f"{here['ms_per_call']['processes_2']:.2f} ms"],
        ["start a cluster on this machine", f"{here['start']['ray_cluster_s']:.0f} s"],
        ["start two Ray workers, which import torch", f"{here['start']['ray_two_workers_s']:.0f} s"],
        ["events that one mailbox takes", f"{here['mailbox']['in_flight_per_s']:,.0f} per second"],
        ["checkpoint of ResNet-18 with momentum", _written(here["checkpoints"]["resnet18"])],
        ["record of a run of 60 epochs", f"{here['checkpoints']['record']['bytes'] / 1e3:.0f} kB"],
        ["a generation's order to a worker", f"{here['messages']['order_with_state_bytes'] / 1e3:.0f} kB"],
    ]
    before, after, cores = load["before"][0], load["after"][0], here["machine"]["cores"]
    where = f"On {cores} cores ([record](../results/executors/cpu.json)), with a load of {before:.0f} before and {after:.0f} after."
    return [
        where,
        _verdict(before, cores),
        "",
        *markdown.table(heads, lines),
        "",
        *markdown.table(["", "measured"], costs),
    ]


def _verdict(load: float, cores: int) -> str:
    if load < cores:  # of the last minute: whatever ended just before counts, too
        return "Little else ran."
    return (
        "**Other programs kept the cores busy, so seconds do not show what a second worker is worth.** The CPU time of all "
        "processes bounds it."
    )


def _written(found: dict[str, Any]) -> str:
    return f"{found['bytes'] / 1e6:.0f} MB, written in {found['seconds']:.2f} s"
