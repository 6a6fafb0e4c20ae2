"""What executors cost here, and what 1,000 GPUs would do: arithmetic from numbers that were measured."""

from dataclasses import dataclass
from typing import Any

from experiments import markdown, results

GPUS = 1000
EPOCHS = 60
"""Of a run at scale short."""

CHECKPOINT_SECONDS = 20
EVENTS = 1.0
"""Events about steps that a run tells in a second, beside one for each epoch."""

NETWORK = 1.25e9
"""Bytes per second of a file server with a 10 Gbit/s link: assumed, not measured."""

LOADS = {
    "campaign": "runs of a campaign (digits, small CNN, 10 epochs)",
    "table": "rows of the table (300 steps, 19 columns)",
    "generation": "generations (8 tasks x 8 members)",
}


@dataclass(frozen=True)
class Numbers:
    """What the arithmetic begins with: seconds, bytes and rates, each from a record."""

    epoch: float
    call: float
    events: float
    event: int
    record: int
    checkpoint: int
    checkpoint_write: float
    generation: float


def numbers() -> Numbers:
    """From the records."""
    here, loop = results.data("executors/cpu.json"), results.data("loop/h200.json")
    learned = results.data("universal_lstm/universal-lstm.json")
    return Numbers(
        epoch=loop["gpu"]["cosine_s"],
        call=here["ms_per_call"]["ray_2"] / 1e3,
        events=here["mailbox"]["in_flight_per_s"],
        event=here["mailbox"]["event_bytes"],
        record=here["checkpoints"]["record"]["bytes"],
        checkpoint=here["checkpoints"]["resnet18"]["bytes"],
        checkpoint_write=here["checkpoints"]["resnet18"]["seconds"],
        generation=learned["seconds"] / len(learned["generations"]),
    )


def measured() -> list[str]:
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


def campaign() -> list[str]:
    """1,000 runs of ResNet-18 at a time."""
    n = numbers()
    run = EPOCHS * n.epoch
    rate, most_calls = GPUS / run, 1 / n.call
    told = EVENTS + 1 / n.epoch
    bandwidth = GPUS * n.checkpoint / CHECKPOINT_SECONDS
    fits = NETWORK * CHECKPOINT_SECONDS / n.checkpoint
    wanted = GPUS * n.checkpoint / NETWORK
    lines = [
        ["a run", f"{EPOCHS} epochs x {n.epoch:.2f} s", f"{run:.0f} s"],
        ["records", f"{GPUS:,} / {run:.0f} s", f"{rate:.0f} per second"],
        ["the driver can give out", f"1 / {1e3 * n.call:.1f} ms", f"{most_calls:.0f} per second"],
        ["so it is the limit from", f"{most_calls:.0f} x {run:.0f} s", f"{_rounded(most_calls * run)} GPUs"],
        ["records through Ray", f"{rate:.0f} x {n.record / 1e3:.0f} kB", f"{rate * n.record / 1e6:.1f} MB/s"],
        ["events", f"{GPUS:,} x ({EVENTS:.0f} + 1 / {n.epoch:.2f}) per second", f"{GPUS * told:,.0f} per second"],
        ["the mailbox is the limit from", f"{n.events:,.0f} / {told:.2f}", f"{_rounded(n.events / told)} GPUs"],
        [
            f"checkpoints, every {CHECKPOINT_SECONDS} s",
            f"{GPUS:,} x {n.checkpoint / 1e6:.0f} MB / {CHECKPOINT_SECONDS} s",
            f"{bandwidth / 1e9:.1f} GB/s",
        ],
        [
            "a file server at 10 Gbit/s is the limit from",
            f"1.25 GB/s x {CHECKPOINT_SECONDS} s / {n.checkpoint / 1e6:.0f} MB",
            f"{_rounded(fits)} GPUs",
        ],
        [
            f"`--checkpoint-seconds` for {GPUS:,} GPUs",
            f"{GPUS:,} x {n.checkpoint / 1e6:.0f} MB / 1.25 GB/s",
            f"{wanted:.0f} s at least",
        ],
    ]
    return markdown.table([f"{GPUS:,} GPUs, ResNet-18 on CIFAR-10", "arithmetic", "result"], lines)


def _rounded(value: float) -> str:
    """Two digits: the rest is not known."""
    return f"{float(f'{value:.2g}'):,.0f}"
