"""The law beside other people's learning-rate sweeps, from the records of `lab/studies/sweeps`."""

import math
from statistics import geometric_mean, stdev
from typing import Any

from experiments import markdown, results
from lab.studies.sweeps.records import read

SOURCES = (
    ("Step Law, dense", "steplaw", "dense, followed", "dense"),
    ("Step Law, experts", "steplaw", "experts, followed", "experts"),
    ("Marin, Adam's kind", "marin", "Adam's kind, followed", "Adam's kind"),
    ("Marin, eleven optimizers", "marin", "", "all"),
    ("sealed: 124 million", "schaipp", "followed", "equilibrium"),
    ("Marin, AdamH", "adamh", "*", ""),
    ("adapters, Gemma-3-1B", "lora", "Gemma", ""),
    ("DeBERTa, fine-tuned", "deberta", "cells", ""),
    ("CLIP, fine-tuned", "clip", "*", ""),
    ("ResNet-18, ImageNet32", "resnet", "*", ""),
)
"""What tables call a source, its record, and its places there: followed, or the only reading, and at equilibrium. *: the whole."""

LAW, BEFORE, SMALL, USUAL = "the law", "the law before", "that of small trainings", "usual LR"
FORMS = ("steps size", "steps", "steps size batch", "steps batch")
SHORT = {SMALL: "0.087 for all"}


def _read(file: str, place: str) -> Any:
    return None if not place else read(file) if place == "*" else read(file)[place]


def rules() -> list[str]:
    """The mean regret of each rule in each source."""
    heads = [
        "(curves)",
        "best / law",
        LAW,
        "before",
        "0.087",
        USUAL,
        "fitted",
        f"equilibrium: {LAW}",
        "before",
    ]
    return markdown.table(heads, [_costs(name, _read(file, one), _read(file, two)) for name, file, one, two in SOURCES])


def _costs(name: str, record: Any, even: Any) -> list[str]:
    found, other = _by_name(record), _by_name(even)
    costs = [_cost(found.get(LAW), True), *(_cost(found.get(rule)) for rule in (BEFORE, SMALL, USUAL))]
    more = [_cost(other.get(LAW)), _cost(other.get(BEFORE))]
    return [f"{name} ({len((record or even)['cells'])})", _ratio(found.get(LAW)), *costs, _cost(_free(found)), *more]


def _by_name(record: Any) -> dict[str, Any]:
    return {one["rule"]: one for one in record["rules"]} if record else {}


def _ratio(found: Any) -> str:
    """best / law."""
    if found is None:
        return ""
    return f"{1 / found['times best']:.2f}" + (f" ± {found['left']:.2f}" if found["left"] else "")


def _free(found: dict[str, Any]) -> Any:
    """The rule with the most facts that was fitted to other families, with the batch where there is one."""
    some = [found[form] for form in ("steps size batch", "steps batch", "steps size", "steps") if form in found]
    return some[0] if some else None


def _cost(found: Any, with_ends: bool = False) -> str:
    if found is None:
        return ""
    outside = "*" * (2 * found["outside"] > found["cells"])
    ends = f" ({_small(found['low'])} to {_small(found['high'])})" if found["low"] < found["high"] and with_ends else ""
    return f"{_small(found['regret'])}{outside}{ends}"


def _small(value: float) -> str:
    return f"{1000 * value:.1f}" if value < 0.1 else f"{1000 * value:.0f}"


def joined() -> list[str]:
    """The sealed sweep of language models, if a label under cosines is not read."""
    found = _by_name(read("schaipp")["followed, joined"])
    return [
        f"With that sweep whole, the law costs {_small(found[LAW]['regret'])}, the law before "
        f"{_small(found[BEFORE]['regret'])}, and the usual LR {_small(found[USUAL]['regret'])}."
    ]


def opda() -> list[str]:
    """What each rule costs on ImageNet under SGD, and by which factor its sizes were off."""
    networks = (("AlexNet", "alexnet"), ("ConvNeXt-Tiny", "convnext"))
    found = [read("opda")[name]["settled"]["rules"] for _, name in networks]
    heads = ["", *(f"{name}: {what}" for name, _ in networks for what in ("points", "best / rule"))]
    lines = [[SHORT.get(rule, rule), *(text for one in found for text in _sealed(one[rule]))] for rule in found[0]]
    return markdown.table(heads, lines)


def _sealed(one: dict[str, Any]) -> list[str]:
    scale, low, high = one["best scale"]
    return [f"{100 * one['cost'][0]:.0f}", f"{scale:.2g} ({low:.2g} to {high:.2g})"]


def opda_best() -> list[str]:
    """Which multiples of the law the best tenth had."""
    found = [read("opda")[name]["settled"]["best tenth"] for name in ("alexnet", "convnext")]
    (a, *_), (b, *_) = found
    told = ", ".join(f"{low:.1f} to {high:.1f}" for _, low, high in found)
    return [f"The best tenth of the settled trainings had {a:.1f} and {b:.1f} times the law (80 %: {told})."]


def powers() -> list[str]:
    """The powers that each source wants, with and without the batch."""
    heads = ["", "steps", "size", "with the batch: steps", "size", "batch", "left"]
    found = [(name, _read(file, one)) for name, file, one, _ in SOURCES]
    found += [(f"{name}, equilibrium", _read(file, even)) for name, file, _, even in SOURCES[:1]]
    return markdown.table(heads, [_powers(*one) for one in found if one[1] and one[1]["powers"]])


def _powers(name: str, record: Any) -> list[str]:
    found = record["powers"]
    without = next(found[form] for form in FORMS if form in found and "batch" not in form)
    with_batch = next((found[form] for form in FORMS if form in found and "batch" in form), None)
    plain = [f"{without['powers'][fact][0]:.2f}" if fact in without["powers"] else "" for fact in ("steps", "size")]
    return [name, *plain, *_told(with_batch, ("steps", "size", "batch"))]


def _told(found: Any, facts: tuple[str, ...]) -> list[str]:
    if found is None:
        return [""] * (len(facts) + 1)
    return [*(_power(found["powers"].get(fact)) for fact in facts), f"{found['left']:.2f}"]


def _power(found: list[float] | None) -> str:
    return "" if found is None else f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"


def constants() -> list[str]:
    """The constant that each source wants under the law's own powers, where the law has 0.13."""
    found = [one for one in read("joint")["followed"]["constants"] if one["is source"]]
    told = ", ".join(f"{one['group']} {_constant(one[LAW])} ({_constant(one[BEFORE])})" for one in found)
    return [
        f"With the law's own powers, the constant, 0.13 for small trainings, would be (those of the law before): {told}."
    ]


def _constant(found: list[float]) -> str:
    return f"{0.13 * found[0]:.2f}"


def tuned() -> list[str]:
    """How far tuned LRs and relative sizes of eleven optimizers lie apart."""
    found = read("marin")["tuned"]
    whole = {key: max(one[key] for one in found) / min(one[key] for one in found) for key in ("lr", "r")}
    law = geometric_mean(one["r"] / one["law"] for one in found)
    return [
        f"The {len(found)} best settings of Marin's optimizers have LRs within a factor of {whole['lr']:.0f}, but r, at "
        f"equilibrium, within {whole['r']:.1f}: {law:.1f} times the law."
    ]


def reference() -> list[str]:
    """AdamH on a dense network, whose size is known."""
    found = read("adamh")["dense"]
    return [
        f"AdamH's LR *is* a relative step: on a dense network of {found['size'] / 1e6:.0f} million weights its tuned r is "
        f"{found['r']:.3f}, {found['r'] / found['law']:.2f} times the law (the law before: "
        f"{found['r'] / found['before']:.1f} times)."
    ]


def starts() -> list[str]:
    """What the law costs by the length that followed weights begin with."""
    found = read("steplaw")["starts"]
    told = ", ".join(f"{_small(one['law']['regret'])} from {start}" for start, one in found.items())
    return [f"- **The followed length** begins at 0.02, as is assumed. The law's cost on Step Law, dense: {told}."]


def others() -> list[str]:
    """AdamW's best LRs on adapters of five models."""
    found = read("lora")["others"]
    ratios = {key: geometric_mean(one["r"] / one[key] for one in found) for key in ("law", "before")}
    off = stdev(math.log(one["r"] / one["law"]) for one in found)
    return [
        f"AdamW's {len(found)} best LRs on adapters of five other models are {ratios['law']:.2f} times the law "
        f"({ratios['before']:.2f} times the law before). The logarithm of the first ratio deviates by {off:.2f}."
    ]


RULES = (LAW, BEFORE, USUAL, "the law, as if new")


def tuning() -> list[str]:
    """What rules for the LR of a fine-tuning cost, and how often they fail."""
    models = read("deberta")["models"]
    heads = ["", *(f"{name.removeprefix('deberta-')}: {what}" for name in models for what in ("LR", "fail", "lost"))]
    found = [{one["rule"]: one for one in model["rules"]} for model in models.values()]
    return markdown.table(heads, [[rule, *(text for one in found for text in _rule(one[rule]))] for rule in RULES])


def kept() -> list[str]:
    """What the default gives a network that was not looked at when its share was chosen."""
    found = read("clip")["kept"]
    return [
        f"CLIP gets an LR of {found['lr']:.1e}, {100 * found['regret']:.1f} points above the best that was tried (the law before: "
        f"{found['before, lr']:.1e}, {100 * found['before']:.1f}). As if it were new, it would lose {100 * found['as new']:.1f}."
    ]


def _rule(one: dict[str, Any]) -> list[str]:
    return [f"{one['lr']:.1e}", f"{100 * one['fails']:.1f} %", f"{100 * one['lost']:.1f}"]


def bounds() -> list[str]:
    """Where failures begin, and what the best accuracy depends on."""
    record = read("deberta")
    lrs = " and ".join(f"{one['bounds']['lr'][0]:.1e} ({name})" for name, one in record["models"].items())
    left = record["cells"]["powers"]["steps"]["powers"]["steps"]
    return [
        f"Failures stay below 1 % up to LRs of {lrs}. The best LR goes as steps^p with p = {_power(left)}: a fixed distance, "
        f"{geometric_mean(record['best distances']):.3f} of the length of the weights, would be -0.5."
    ]


def table_rules() -> list[str]:
    """Laws on the table of small trainings; forms are judged on families that they were not fitted to."""
    found = results.data("law/fits.json")
    known = {
        "the law before": found["before"],
        **found["forms"],
        "the default's law": found["law"],
        "not told the batch": found["law, untold"],
        "the best size of each training": found["best size"],
        "best size and fall": found["best size and fall of 0.1 or 0.5"],
    }
    lines = [[name, *_gaps(one)] for name, one in known.items()]
    return markdown.table(["", "above the best decay, %", "worst tenth", "than the law before"], lines)


def table_later() -> list[str]:
    """Laws on rows that were drawn after one of them was chosen, and on larger networks."""
    found, larger = (results.data("law/fits.json")[key] for key in ("later rows", "larger"))
    if not found:
        return results.NOTHING
    heads = ["", f"{found['rows']} later, %", "worst tenth", "than the law before", f"{len(larger['rows'])} larger, %"]
    names = [name for name in found if name != "rows"]
    lines = [[_law(name), *_gaps(found[name]), f"{100 * larger['mean'][name]:.1f}"] for name in names]
    lines[names.index("before")][3] = ""
    return markdown.table(heads, lines)


def _law(name: str) -> str:
    return {"before": "the law before", "law": "the default's law"}.get(name, name)


def _gaps(one: dict[str, Any]) -> list[str]:
    return [_percent(one["gap"]), f"{100 * one['worst tenth']:.0f}", _percent(one["more"]) if "more" in one else ""]


def _percent(three: list[float]) -> str:
    middle, low, high = (100 * value for value in three)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def advice() -> list[str]:
    """What half and twice the default's steps cost, by how much a training over-fits."""
    lines = [
        [
            f"{one['from']:g} to {one['to']:g}" if one["to"] else f"{one['from']:g} and more",
            str(one["rows"]),
            *(f"{100 * one[name]:+.1f} % ({100 * one[f'{name} is better']:.0f} %)" for name in ("half", "twice")),
        ]
        for one in results.data("law/fits.json")["advice"]
    ]
    heads = ["test loss at the end / training loss at half-time", "trainings", "half", "twice"]
    return [*markdown.table(heads, lines), "", "In brackets: in how many of them the error was better by 1 % or more."]


def larger() -> list[str]:
    """The laws on larger networks, row by row."""
    found = results.data("law/fits.json")["larger"]
    names = ("before", "law", "best size")
    lines = [
        [
            f"{one['family']}, {one['optimizer']}",
            f"{one['parameters'] / 1e6:.1f} M",
            str(one["steps"]),
            f"{one['best / law']:.2f}",
            *(f"{100 * one[name]:.1f}" for name in names),
        ]
        for one in found["rows"]
    ]
    means = [f"**{100 * found['mean'][name]:.1f}**" for name in names]
    heads = ["", "weights", "steps", "best size / law", "the law before", "the law", "best size"]
    return [*markdown.table(heads, lines), markdown.line(["**mean**", "", "", "", *means])]


def table_powers() -> list[str]:
    """Powers that the best sizes of the table want, and what is left."""
    found = results.data("law/fits.json")["least squares"]
    facts = [name for name in next(iter(found.values()))["powers"] if name != "constant"]
    lines = [
        [
            f"{name} ({one['rows']})",
            *(f"{p:.2f} ± {error:.2f}" for p, error in map(one["powers"].get, facts)),
            f"{one['left']:.2f}",
        ]
        for name, one in found.items()
    ]
    return markdown.table(["trainings", *facts, "left"], lines)


def table_scales() -> list[str]:
    """Scales of the law on two larger networks, beside cosines."""
    lines = []
    for name, file in (("ResNet-18, SGD, errors in %", "resnet18"), ("GPT, 10.8 million, AdamW, nats", "gpt")):
        runs, unit = results.data(f"law/{file}_h200.json")["runs"], 100 if file == "resnet18" else 1
        ours = [_ends([run for run in runs if run["scale"] == scale], unit) for scale in (0.5, 1.0, 2.0, 4.0)]
        lrs = sorted({run["lr"] for run in runs if run["lr"]})
        best = min(lrs, key=lambda lr: sum(run["error"] for run in runs if run["lr"] == lr))
        lines.append(
            [name, *ours, f"{_ends([run for run in runs if run['lr'] == best], unit)} (LR {best:g} of {len(lrs)})"]
        )
    return markdown.table(["", "scale 0.5", "1", "2", "4", "best cosine"], lines)


def _ends(runs: list[dict[str, Any]], unit: float) -> str:
    return ", ".join(f"{unit * run['error']:.{1 if unit > 1 else 2}f}" for run in runs)
