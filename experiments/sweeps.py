"""The law beside other people's learning-rate sweeps, from the records of `lab/studies/sweeps`."""

import math
from statistics import geometric_mean, stdev
from typing import Any

from experiments import markdown, results
from lab.studies.sweeps.records import read

FOLLOWED = (
    ("Step Law, dense", "steplaw", "dense, followed"),
    ("Step Law, experts", "steplaw", "experts, followed"),
    ("Marin, Adam's kind", "marin", "Adam's kind, followed"),
    ("sealed: 124 million", "schaipp", "followed"),
)
"""What tables call a source whose weights decay, its record, and its place there: lengths followed."""

EQUILIBRIUM = (
    ("Step Law, dense", "steplaw", "dense"),
    ("Step Law, experts", "steplaw", "experts"),
    ("Marin, Adam's kind", "marin", "Adam's kind"),
    ("Marin, eleven optimizers", "marin", "all"),
    ("sealed: 124 million", "schaipp", "equilibrium"),
)
"""The same, at equilibrium."""

OTHERS = (
    ("Marin, AdamH", "adamh", ""),
    ("adapters, Gemma-3-1B", "lora", "Gemma"),
    ("DeBERTa, fine-tuned", "deberta", "cells"),
    ("CLIP, fine-tuned", "clip", ""),
    ("ResNet-18, ImageNet32", "resnet", ""),
)
"""Where there is one reading only."""

LAW, BEFORE, SMALL, USUAL = "the law", "the law before", "that of small trainings", "usual LR"
FORMS = ("steps size", "steps", "steps size batch", "steps batch")
NAMES = {SMALL: "0.087 for all"}


def sources(*some: tuple[str, str, str]) -> list[tuple[str, Any]]:
    """Their names and records."""
    return [(name, read(file)[place] if place else read(file)) for name, file, place in some]


def rules() -> list[str]:
    """The mean regret of each rule in each source."""
    heads = ["", "curves", "best / law", LAW, BEFORE, "0.087 for all", USUAL, "fitted elsewhere"]
    parts = (("", FOLLOWED), ("", OTHERS), ("at equilibrium: ", EQUILIBRIUM))
    return markdown.table(
        heads, [_costs(kind + name, record) for kind, some in parts for name, record in sources(*some)]
    )


def _costs(name: str, record: Any) -> list[str]:
    found = {one["rule"]: one for one in record["rules"]}
    costs = [_cost(found.get(rule)) for rule in (LAW, BEFORE, SMALL, USUAL)]
    return [name, str(len(record["cells"])), _ratio(found.get(LAW)), *costs, _cost(_free(found), False)]


def _ratio(found: Any) -> str:
    """best / law."""
    if found is None:
        return ""
    return f"{1 / found['times best']:.2f}" + (f" ± {found['left']:.2f}" if found["left"] else "")


def _free(found: dict[str, Any]) -> Any:
    """The rule with the most facts that was fitted to other families, with the batch where there is one."""
    some = [found[form] for form in ("steps size batch", "steps batch", "steps size", "steps") if form in found]
    return some[0] if some else None


def _cost(found: Any, with_ends: bool = True) -> str:
    if found is None:
        return ""
    outside = "*" * (2 * found["outside"] > found["cells"])
    ends = f" ({_small(found['low'])} to {_small(found['high'])})" if found["low"] < found["high"] and with_ends else ""
    return f"{_small(found['regret'])}{outside}{ends}"


def _small(value: float) -> str:
    return f"{1000 * value:.1f}" if value < 0.1 else f"{1000 * value:.0f}"


def joined() -> list[str]:
    """The sealed sweep of language models, if a label under cosines is not read."""
    found = {one["rule"]: one for one in read("schaipp")["followed, joined"]["rules"]}
    return [
        f"With that sweep whole, the law costs {_small(found[LAW]['regret'])}, the law before "
        f"{_small(found[BEFORE]['regret'])}, and the usual LR {_small(found[USUAL]['regret'])}."
    ]


def opda() -> list[str]:
    """What each rule costs on ImageNet under SGD: errors above the lowest, the best scale, and the share that becomes NaN."""
    record = read("opda")
    lines = [
        [network, NAMES.get(rule, rule), *_sealed(one), f"{100 * one['nan']:.0f}"]
        for network, name in (("AlexNet", "alexnet"), ("ConvNeXt-Tiny", "convnext"))
        for rule, one in record[name]["settled"]["rules"].items()
    ]
    return markdown.table(["", "", "points above the lowest", "best / rule", "NaN, %"], lines)


def _sealed(one: dict[str, Any]) -> list[str]:
    (cost, *ends), (scale, low, high) = ([100 * value for value in one["cost"]], one["best scale"])
    return [f"{cost:.0f} ({ends[0]:.0f} to {ends[1]:.0f})", f"{scale:.2g} ({low:.2g} to {high:.2g})"]


def opda_best() -> list[str]:
    """Which multiples of the law the best tenth had."""
    found = [read("opda")[name]["settled"]["best tenth"] for name in ("alexnet", "convnext")]
    (a, *_), (b, *_) = found
    told = ", ".join(f"{low:.1f} to {high:.1f}" for _, low, high in found)
    return [f"The best tenth of the settled trainings had {a:.1f} and {b:.1f} times the law (80 %: {told})."]


def powers() -> list[str]:
    """The powers that each source wants, with and without the batch."""
    heads = ["", "curves", "steps", "size", "left", "with the batch: steps", "size", "batch", "left"]
    parts = (("", FOLLOWED), ("", OTHERS), ("at equilibrium: ", EQUILIBRIUM[:2]))
    found = [(kind + name, record) for kind, some in parts for name, record in sources(*some)]
    return markdown.table(heads, [_powers(*one) for one in found if one[1]["powers"]])


def _powers(name: str, record: Any) -> list[str]:
    found = record["powers"]
    without, with_batch = (
        next((found[form] for form in FORMS if form in found and has == ("batch" in form)), None)
        for has in (False, True)
    )
    cells = [one for one in record["cells"] if one["best"] is not None]
    return [
        name,
        str(len(cells)),
        *_told(without, ("steps", "size")),
        *_told(with_batch, ("steps", "size", "batch")),
    ]


def _told(found: Any, facts: tuple[str, ...]) -> list[str]:
    if found is None:
        return [""] * (len(facts) + 1)
    return [*(_power(found["powers"].get(fact)) for fact in facts), f"{found['left']:.2f}"]


def _power(found: list[float] | None) -> str:
    return "" if found is None else f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"


def joint() -> list[str]:
    """Forms with powers that all sources share: what is left of the regret of one constant a source."""
    mean = {(one["facts"], one["powers of"]): one["mean"] for one in read("joint")["followed"]["forms"]}
    even = {(one["facts"], one["powers of"]): one["mean"] for one in read("joint")["equilibrium"]["forms"]}
    law, before, others = (LAW, "no source"), (BEFORE, "no source"), ("steps size batch", "the other sources")
    return [
        f"With a free constant for each source, the law's powers leave {mean[law]:.2f} of the regret of one size, those of the law "
        f"before {mean[before]:.2f}, and powers that were fitted to the other sources {mean[others]:.2f}; at equilibrium "
        f"{even[law]:.2f}, {even[before]:.2f} and {even[others]:.2f}."
    ]


def constants() -> list[str]:
    """The constant that each source wants under the law's own powers, where the law has 0.13."""
    found = [one for one in read("joint")["followed"]["constants"] if one["is source"]]
    lines = [
        [one["group"], *(f"{0.13 * ratio:.2f} (off by {left:.2f})" for ratio, left in (one[LAW], one[BEFORE]))]
        for one in found
    ]
    return markdown.table(["constant", LAW, BEFORE], [["small trainings", "0.13", "0.13"], *lines])


def tuned() -> list[str]:
    """How far tuned LRs and relative sizes of eleven optimizers lie apart."""
    found = read("marin")["tuned"]
    spread = {key: _between(found, key) for key in ("lr", "r")}
    whole = {key: max(one[key] for one in found) / min(one[key] for one in found) for key in ("lr", "r")}
    law = geometric_mean(one["r"] / one["law"] for one in found)
    return [
        f"The {len(found)} best settings of Marin have LRs within a factor of {whole['lr']:.0f} and r, at equilibrium, within "
        f"{whole['r']:.1f}. Between optimizers, at the same size and data, the logarithm of the LR deviates by "
        f"{spread['lr']:.2f}, and that of r by {spread['r']:.2f}. They are {law:.1f} times the law."
    ]


def reference() -> list[str]:
    """AdamH on a dense network, whose size is known."""
    found = read("adamh")["dense"]
    return [
        f"AdamH's LR *is* a relative step: on a dense network of {found['size'] / 1e6:.0f} million weights its tuned r is "
        f"{found['r']:.3f}, {found['r'] / found['law']:.2f} times the law and {found['r'] / found['before']:.1f} times the law before."
    ]


def experts() -> list[str]:
    """What the size of a mixture of experts is."""
    found = read("steplaw")["one constant"]
    whole, in_use = (found[key]["left"] for key in ("params", "params_active"))
    return [
        f"With one constant for dense networks and mixtures, all three powers leave a deviation of {whole:.2f} in log r; with the "
        f"weights in use instead of all, {in_use:.2f}."
    ]


def logged() -> list[str]:
    """The best relative sizes of the ResNet-18."""
    cells = read("resnet")["cells"]
    told = "; ".join(f"{one['name']}: {one['best']:.4f}, the law {one['law']:.3f}" for one in cells)
    return [f"Best r of the ResNet-18, whose lengths were logged: {told}."]


def starts() -> list[str]:
    """The power of the steps by the length that followed weights begin with."""
    found = read("steplaw")["starts"]
    told = ", ".join(f"{one['powers']['steps'][0]:.2f} from {start}" for start, one in found.items())
    costs = ", ".join(f"{_small(one['law']['regret'])} ({_ratio(one['law'])})" for one in found.values())
    return [
        f"- **The followed length** begins at 0.02. Step Law's power of the steps, with the batch: {told}. Costs of the law there "
        f"(best / law): {costs}."
    ]


def others() -> list[str]:
    """AdamW's best LRs on adapters of five models."""
    found = read("lora")["others"]
    ratios = {key: geometric_mean(one["r"] / one[key] for one in found) for key in ("law", "before")}
    off = stdev(math.log(one["r"] / one["law"]) for one in found)
    return [
        f"AdamW's {len(found)} best LRs on adapters of five other models are {ratios['law']:.2f} times the law "
        f"({ratios['before']:.2f} times the law before). The logarithm of the first ratio deviates by {off:.2f}."
    ]


def _between(found: list[dict[str, Any]], key: str) -> float:
    """The deviation of the logarithm among trainings of one family."""
    families = {one["family"] for one in found}
    squares = [
        (stdev(logs) ** 2, len(logs) - 1)
        for logs in (_logs(found, family, key) for family in families)
        if len(logs) > 1
    ]
    return math.sqrt(sum(square * free for square, free in squares) / sum(free for _, free in squares))


def _logs(found: list[dict[str, Any]], family: str, key: str) -> list[float]:
    return [math.log(one[key]) for one in found if one["family"] == family]


def tuning() -> list[str]:
    """What rules for the LR of a fine-tuning cost, and how often they fail."""
    models = read("deberta")["models"]
    heads = ["", *(f"{name}: {what}" for name in models for what in ("LR", "fail", "accuracy lost"))]
    rows = zip(*(model["rules"] for model in models.values()), strict=True)
    return markdown.table(heads, [[row[0]["rule"], *(text for one in row for text in _rule(one))] for row in rows])


def kept() -> list[str]:
    """What the default gives a network that was not looked at when its share was chosen."""
    found = read("clip")["kept"]
    return [
        f"CLIP gets an LR of {found['lr']:.1e}, {100 * found['regret']:.1f} points above the best that was tried (the law before: "
        f"{found['before, lr']:.1e}, {100 * found['before']:.1f}). As if it were new, it would lose {100 * found['as new']:.1f}."
    ]


def _rule(one: dict[str, Any]) -> list[str]:
    return [f"{one['lr']:.2g}", f"{100 * one['fails']:.1f} %", f"{100 * one['lost']:.1f} points"]


def bounds() -> list[str]:
    """Where failures begin, what they depend on, and what the best accuracy depends on."""
    record = read("deberta")
    lines = [_bound(name, model) for name, model in record["models"].items()]
    best, left = record["best distances"], record["cells"]["powers"]["steps"]["powers"]["steps"]
    return [
        *lines,
        f"- The best LR goes as steps^p with p = {_power(left)}; a fixed distance would be -0.5. Its distance is "
        f"{geometric_mean(best):.3f} of the length of the weights.",
    ]


def _bound(name: str, model: dict[str, Any]) -> str:
    lr, matters = model["bounds"]["lr"], model["what matters"]
    return (
        f"- {name}: failures stay below 1 % up to an LR of {lr[0]:.1e} ({lr[1]:.1e} to {lr[2]:.1e}). They depend on "
        f"LR x steps^{matters['steps'][0]:.2f} x batch^{matters['batch'][0]:.2f}, and grow with shorter warm-ups."
    )


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
    """Laws on rows that were drawn after one of them was chosen."""
    found = results.data("law/fits.json")["later rows"]
    if not found:
        return results.NOTHING
    lines = [[_law(name), *_gaps(one)] for name, one in found.items() if name != "rows"]
    return markdown.table(
        [f"{found['rows']} trainings", "above the best decay, %", "worst tenth", "than the law before"], lines
    )


def table_larger() -> list[str]:
    """Laws on larger networks: the mean gap, and each network's own."""
    found = results.data("law/fits.json")["larger"]
    laws = list(found["mean"])
    rows = [
        [_told_row(one), f"{one['best / law']:.2f}", *(f"{100 * one[name]:.1f}" for name in laws)]
        for one in found["rows"]
    ]
    mean = ["mean", "", *(f"{100 * found['mean'][name]:.1f}" for name in laws)]
    return markdown.table(["above the best decay, %", "best / law", *map(_law, laws)], [*rows, mean])


def _law(name: str) -> str:
    return {"before": "the law before", "law": "the default's law", "best size": "the best size"}.get(name, name)


def _told_row(one: dict[str, Any]) -> str:
    million = one["parameters"] / 1e6
    return f"{one['family']}, {one['optimizer']}, {million:.1f} million, batch {one['batch']}, {one['steps']:,} steps"


def _gaps(one: dict[str, Any]) -> list[str]:
    return [_percent(one["gap"]), f"{100 * one['worst tenth']:.0f}", _percent(one["more"]) if "more" in one else ""]


def _percent(three: list[float]) -> str:
    middle, low, high = (100 * value for value in three)
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


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
