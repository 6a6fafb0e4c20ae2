"""What everything costs: a step, a meta-update, an epoch of every method, many trainings at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments import markdown, results
from mlrsnet_lab.recipes import time as time_recipe
from mlrsnet_lab.report.numbers import metric_text, number, short_text
from mlrsnet_lab.report.tables import Row

PLAIN_STEPS = ("Fixed", "MultiStep", "Exponential", "SGDR")
"""Methods that differ in the LR alone."""

LOOPS = {
    "cosine": "the lab's loop, one CUDA graph per step",
    "learned": "the same with a learned schedule",
    "meta_training": "the same with MLR-SNet meta-training, T_val = 100",
    "eager_fp32": "plain eager loop, DataLoader, fp32",
    "eager_bf16": "plain eager loop, DataLoader, bf16",
}
"""What `benchmarks/loop.py` calls them, in words."""


@dataclass(frozen=True)
class Time:
    """Median seconds per epoch, over a run's epochs and then over runs; how many epochs of how many runs; the device."""

    seconds: float
    epochs: int
    runs: int
    device: str


def times(rows: Iterable[Row]) -> dict[str, Time]:
    """By row; a run that was stopped has seconds too."""
    found = {}
    for row in rows:
        timed = [(run, one) for run in row.runs if (one := number(run.timing("seconds_per_epoch"))) is not None]
        if timed:
            devices = dict.fromkeys(str(run.record.data["device"]) for run, _ in timed)
            epochs = sum(len(run.record.epochs) for run, _ in timed)
            found[row.name] = Time(median(one for _, one in timed), epochs, len(timed), ", ".join(devices))
    return found


def ratios(found: dict[str, Time]) -> dict[str, float]:
    """To the median of the methods with a plain step; empty if none of them was run."""
    plain = [found[row].seconds for row in PLAIN_STEPS if row in found]
    return {row: time.seconds / median(plain) for row, time in found.items()} if plain else {}


def _table(found: dict[str, Time]) -> list[str]:
    """One row per method, with its ratio to a plain step if several were run."""
    if not found:
        return results.NOTHING
    devices = ", ".join(dict.fromkeys(time.device for time in found.values()))
    compared = ratios(found) if len(found) > 1 else {}
    heads = [devices, "seconds per epoch", *(["against a plain step"] if compared else []), "epochs, runs"]
    lines = []
    for row, time in found.items():
        ratio = [f"{compared[row]:.2f}"] if compared else []
        lines.append([row, short_text(time.seconds), *ratio, f"{time.epochs}, {time.runs}"])
    return markdown.table(heads, lines)


def timing() -> list[str]:
    """Every method, then the same network in plain loops, which were measured apart."""
    return [*_table(methods()), "", *loops("cosine", "eager_fp32", "eager_bf16")]


def methods() -> dict[str, Time]:
    """Every method of the paper's figure, alone on the GPU."""
    section = results.section(results.place("time", "short"))
    tables = section.tables if section else []
    return times(row for table in tables if table.title == time_recipe.COLUMN for row in table.rows)


def large() -> list[str]:
    """WideResNet-28-10 on CIFAR-100, a few epochs of Table 1 at the paper's scale, alone on the GPU."""
    section = results.section("large")
    tables = section.tables if section else []
    return _table(times(row for table in tables if table.title == "CIFAR-100" for row in table.rows))


def loops(*names: str) -> list[str]:
    """ResNet-18 on CIFAR-10, loops measured in turns."""
    record = results.data("loop/h200.json")
    found, device = record["gpu"], record["machine"]["device"]
    lines = (
        [LOOPS[name], f"{found[f'{name}_s']:.2f}", f"{found[f'{name}_s'] / found['cosine_s']:.3f}"]
        for name in names or LOOPS
    )
    return markdown.table([f"{device}, ResNet-18 on CIFAR-10", "seconds per epoch", "against the lab's"], lines)


def loop_cost() -> list[str]:
    """All loops on the GPU, a step with a meta-update, and the lab's loop against a bare one on a CPU."""
    gpu, cpu = results.data("loop/h200.json"), results.data("loop/cpu.json")
    more = [
        ["a step with a meta-update, in plain steps", f"{gpu['gpu']['meta_step_over_plain_step']:.2f}"],
        [
            f"the lab's loop against a bare loop, digits, {cpu['machine']['device']}",
            f"{cpu['cpu']['lab_over_bare']:.2f}",
        ],
    ]
    links = "Records: [h200.json](../results/loop/h200.json), [cpu.json](../results/loop/cpu.json)."
    return [*loops(), "", *markdown.table(["", "ratio"], more), "", links]


STEPS = {
    "default": "the default",
    "untold": "the default, without losses",
    "default tensor": "the default, tensor LRs",
    "lstm": "the paper's network",
    "schedule-free": "Schedule-Free's AdamW",
    "prodigy": "Prodigy's AdamW",
}
"""What `benchmarks/step_overhead.py` calls them, in words."""

SIZES = {"mlp": "MLP", "cnn": "CNN", "gpt": "GPT"}


def step_cost() -> list[str]:
    """A training step against the same one of AdamW under a cosine, and what is kept beyond it."""
    path = "step_overhead/cpu.json"
    record = results.data(path)
    found = record["cpu"]
    heads = [f"{name}, {_rounded(found[key]['weights'])} weights" for key, name in SIZES.items()]
    times = (
        [words, *(f"{found[key]['ratio'][kind]:.2f} ± {found[key]['standard_error'][kind]:.2f}" for key in SIZES)]
        for kind, words in STEPS.items()
    )
    kept = ([words, *(_bytes(found[key]["added_bytes"][kind]) for key in SIZES)] for kind, words in STEPS.items())
    return [
        *markdown.table([f"step / AdamW's under a cosine, {found['device']}", *heads], times),
        "",
        *markdown.table(["memory beyond AdamW's", *heads], kept),
        "",
        f"{_counted(record['counts'])} {_link(path)}.",
        "",
        _captured("step_overhead/h200.json"),
    ]


def _captured(path: str) -> str:
    """What schedules add to a step that is one CUDA graph."""
    found = results.data(path)["gpu"]
    kinds = ("default_adds_over_training_step", "default_momentum_adds_over_training_step", "added_over_training_step")
    plain, momentum, network = (f"{100 * found[kind]:.0f} %" for kind in kinds)
    return (
        f"In a CUDA graph on an {found['device']}, a step of ResNet-18 takes {found['training_step_us'] / 1000:.1f} ms; the "
        f"default adds {plain} with plain SGD and {momentum} with momentum, the paper's network {network}. {_link(path)}."
    )


def _rounded(count: int) -> str:
    return f"{count / 1e6:.1f} million" if count >= 1e5 else f"{count:,}"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.0f} kB"


def _counted(counts: dict[str, Any]) -> str:
    """Functions and files that a step and a construction enter, and calls of torch, over the optimizers."""
    step, made = ([one[key] for one in counts.values()] for key in ("step", "construction"))
    calls = [one["aten_calls"] for one in counts.values()]
    return (
        f"A step enters {_range(one['functions'] for one in step)} functions of the library in "
        f"{_range(one['files'] for one in step)} files, a construction {_range(one['functions'] for one in made)} in "
        f"{_range(one['files'] for one in made)}; it makes {_range(calls)} calls of torch, for "
        f"{next(iter(counts.values()))['large_matrices']} large matrices."
    )


def _range(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return f"{found[0]} to {found[-1]}" if len(found) > 1 else str(found[0])


def meta_cost() -> list[str]:
    """What `MetaTrainer` adds to a training, and a textbook look-ahead in its place."""
    cpu, gpu = (results.data(f"metatrain_overhead/{name}.json")[key] for name, key in (("cpu", "cpu"), ("h200", "gpu")))
    small, large = "small CNN, batch 128", "ResNet-18, batch 128, bf16, eager"
    lines = [
        [
            f"{small}, {cpu['device']}",
            f"{cpu['every_100_over_plain']:.3f}",
            f"{cpu['meta_update_step_over_plain']:.2f}",
        ],
        [f"the same, textbook, {cpu['device']}", "", f"{cpu['textbook_step_over_plain']:.2f}"],
        [
            f"{large}, {gpu['device']}",
            f"{gpu['every_100_over_plain']:.3f}",
            f"{gpu['meta_update_step_over_plain']:.2f}",
        ],
        [f"the same, textbook, {gpu['device']}", "", f"{gpu['textbook_step_over_plain']:.2f}"],
    ]
    more = [
        ["", "not measured", _link("metatrain_overhead/cpu.json")],
        ["", "not measured", _link("metatrain_overhead/cpu.json")],
        *(
            [
                f"{gpu[f'{name}_step_device_time_over_plain']:.2f}",
                f"{gpu[f'{memory}_extra_in_copies_of_the_weights']:.1f}",
                _link("metatrain_overhead/h200.json"),
            ]
            for name, memory in (("meta_update", "meta"), ("textbook", "textbook"))
        ),
    ]
    heads = ["against plain training", "at T_val = 100", "a step with a meta-update", "the same, GPU time only"]
    rows = [[*line, *rest] for line, rest in zip(lines, more, strict=True)]
    return markdown.table([*heads, "extra memory, in copies of the weights", "record"], rows)


def populations() -> list[str]:
    """Trainings of the patch network at once, against one by one."""
    record = results.data("horizon/speed-h200.json")
    lines = (
        [
            str(line["trainings"]),
            f"{line['steps_per_second']:,.0f}",
            f"{line['over_one_by_one']:.0f} times",
            f"{line['peak_mib']:.0f}",
        ]
        for line in record["populations"]
        if line.get("precision", "fp32") == "fp32"  # bf16 was measured, and is gone
    )
    heads = [
        f"trainings at once, {record['machine']['device']}",
        "steps per second",
        "as fast as one by one",
    ]
    return markdown.table([*heads, "peak memory (MiB)"], lines)


def smoke_time() -> list[str]:
    """How long everything took, with the recipes that there were then."""
    found = results.data("reproduce_all/smoke.json")
    record = "[record](../results/reproduce_all/smoke.json)"
    words = f"{found['runs']} trainings in {found['seconds']:.0f} s on {found['cpu'].split(',')[0].replace('cores', 'CPU cores')}"
    return [f"`mlrsnet reproduce all --scale smoke`: {words} ({record}). Recipes were added since."]


def initialisations() -> list[str]:
    """Cosine from 0.1, 30 epochs, ResNet-18: torch's initialisation and He's."""
    lines = []
    for run in results.report("cifar10_resnet18").runs:
        init = "He's" if run.record.spec["model_options"].get("init") == "he" else "torch's"
        result = [metric_text(run.result("last")), metric_text(run.result("best"))]
        lines.append([f"{init} initialisation", *result, str(run.record.data["device"])])
    record = "Record: [runs.jsonl](../results/cifar10_resnet18/runs.jsonl)."
    heads = ["ResNet-18 on CIFAR-10, cosine from 0.1, 30 epochs", "last epoch (%)", "best epoch (%)", "device"]
    return [*markdown.table(heads, lines), "", record]


def _link(path: str) -> str:
    return f"[{path.split('/')[1]}](../results/{path})"
