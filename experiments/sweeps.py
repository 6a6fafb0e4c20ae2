"""The law beside other people's learning-rate sweeps, from the records of `lab/studies/sweeps`."""

import math
from statistics import geometric_mean, stdev
from typing import Any

from experiments import markdown, results
from lab.studies.sweeps.records import read

SOURCES = (
    ("Step Law, dense", "steplaw", "dense"),
    ("the same, followed", "steplaw", "dense, followed"),
    ("Step Law, experts", "steplaw", "experts"),
    ("the same, followed", "steplaw", "experts, followed"),
    ("Marin, eleven optimizers", "marin", "all"),
    ("Marin, Adam's kind", "marin", "Adam's kind"),
    ("the same, followed", "marin", "Adam's kind, followed"),
    ("Marin, AdamH", "adamh", ""),
    ("adapters, Gemma-3-1B", "lora", "Gemma"),
    ("DeBERTa, fine-tuned", "deberta", "cells"),
    ("CLIP, fine-tuned", "clip", ""),
    ("ResNet-18, ImageNet32", "resnet", ""),
)
"""What tables call it, its record, and its place there."""

LAW, ONE, TIMES, USUAL = "the law", "one relative size", "the law times a constant", "usual LR"
FORMS = ("steps size", "steps", "steps size batch", "steps batch")


def sources() -> list[tuple[str, Any]]:
    """Their names and records."""
    return [(name, read(file)[place] if place else read(file)) for name, file, place in SOURCES]


def rules() -> list[str]:
    """The mean regret of each rule in each source."""
    heads = [
        "",
        "curves",
        "the law",
        "it times a constant",
        "one relative size",
        "usual LR",
        "free powers",
        "with the batch",
    ]
    return markdown.table(heads, [_costs(*one) for one in sources()])


def _costs(name: str, record: Any) -> list[str]:
    found = {one["rule"]: one for one in record["rules"]}
    free, batch = _free(found, False), _free(found, True)
    cells = str(len(record["cells"]))
    return [name, cells, *(_cost(found.get(rule)) for rule in (LAW, TIMES, ONE, USUAL)), _cost(free), _cost(batch)]


def _free(found: dict[str, Any], with_batch: bool) -> Any:
    """The rule with the most facts, with the batch or without."""
    some = [found[form] for form in FORMS if form in found and ("batch" in form) == with_batch]
    return some[0] if some else None


def _cost(found: Any) -> str:
    if found is None:
        return ""
    outside = "*" * (2 * found["outside"] > found["cells"])
    ends = f" ({_small(found['low'])} to {_small(found['high'])})" if found["low"] < found["high"] else ""
    return f"{_small(found['regret'])}{outside}{ends}"


def _small(value: float) -> str:
    return f"{1000 * value:.1f}" if value < 0.1 else f"{1000 * value:.0f}"


def powers() -> list[str]:
    """The powers that each source wants, with and without the batch."""
    heads = ["", "curves", "best / law", "steps", "size", "left", "with the batch: steps", "size", "batch", "left"]
    return markdown.table(heads, [_powers(*one) for one in sources() if one[1]["powers"]])


def _powers(name: str, record: Any) -> list[str]:
    found = record["powers"]
    without, with_batch = (
        next((found[form] for form in FORMS if form in found and has == ("batch" in form)), None)
        for has in (False, True)
    )
    cells = [one for one in record["cells"] if one["best"] is not None]
    known = [one for one in cells if one["law"] is not None]
    ratio = f"{geometric_mean(one['best'] / one['law'] for one in known):.3g}" if known else ""
    return [
        name,
        str(len(cells)),
        ratio,
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
    heads = [
        "powers",
        "of",
        *(f"{name}" for name in ("Step Law", "Marin", "AdamH", "adapters", "mean", "mean at equilibrium")),
    ]
    record = read("joint")
    plain = {(one["facts"], one["powers of"]): one["mean"] for one in record["equilibrium"]["forms"]}
    lines = [
        _form(one, plain) for one in record["followed"]["forms"] if one["facts"] not in ("", "steps", "size", "batch")
    ]
    return markdown.table(heads, lines)


def _form(one: dict[str, Any], plain: dict[tuple[str, str], float]) -> list[str]:
    shares = [f"{one['shares'][name]:.2f}" for name in ("Step Law", "Marin", "AdamH", "Adapters")]
    return [
        one["facts"],
        one["powers of"],
        *shares,
        f"{one['mean']:.2f}",
        f"{plain[one['facts'], one['powers of']]:.2f}",
    ]


def constants() -> list[str]:
    """The constant of each group under each form."""
    found = read("joint")["followed"]["constants"]
    forms = [key for key in found[0] if key not in ("group", "cells")]
    lines = [[one["group"], *(f"{one[form][0]:.2f}" for form in forms)] for one in found]
    return markdown.table(["constant", *forms], [["small trainings", *("0.13" for _ in forms)], *lines])


def tuned() -> list[str]:
    """How far tuned LRs and relative sizes of eleven optimizers lie apart."""
    found = read("marin")["tuned"]
    spread = {key: _between(found, key) for key in ("lr", "r")}
    whole = {key: max(one[key] for one in found) / min(one[key] for one in found) for key in ("lr", "r")}
    law = geometric_mean(one["r"] / one["law"] for one in found)
    return [
        f"The {len(found)} best settings, one for each optimizer, size and number of tokens, have LRs within a factor of "
        f"{whole['lr']:.0f} and r within {whole['r']:.1f}. Between optimizers, at the same size and data, the logarithm of the LR "
        f"deviates by {spread['lr']:.2f}, half of that is {spread['lr'] / 2:.2f} (r is a square root), and that of r by "
        f"{spread['r']:.2f}. They are {law:.1f} times the law."
    ]


def reference() -> list[str]:
    """AdamH on a dense network, whose size is known."""
    found = read("adamh")["dense"]
    return [
        f"On a dense network of {found['size'] / 1e6:.0f} million weights and {found['steps']:,.0f} steps its tuned r is "
        f"{found['r']:.3f}, {found['r'] / found['law']:.1f} times the law."
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
    """The best LRs and relative sizes of the ResNet-18."""
    found = read("resnet")
    lrs, sizes = found["best lrs"].values(), [one["best"] for one in found["cells"]]
    return [
        f"Best LRs of SGD with momentum and AdamW: {min(lrs):g} to {max(lrs):g}. Best r: {min(sizes):.4f} to {max(sizes):.4f}. "
        f"The law: {found['cells'][0]['law']:.4f}."
    ]


def starts() -> list[str]:
    """The power of the steps by the length that followed weights begin with."""
    found = read("steplaw")["starts"]
    told = ", ".join(f"{_power(one['powers']['steps'])} from {start}" for start, one in found.items())
    return [f"- **The followed length** begins at 0.02. Step Law's power of the steps, with the batch: {told}."]


def others() -> list[str]:
    """AdamW's best LRs on adapters of five models."""
    found = read("lora")["others"]
    ratios = {key: geometric_mean(one["r"] / one[key] for one in found) for key in ("law", "law with depth")}
    off = stdev(math.log(one["r"] / one["law"]) for one in found)
    return [
        f"AdamW's {len(found)} best LRs on adapters of other models are {ratios['law']:.2f} times the law with depth 1, and "
        f"{ratios['law with depth']:.0f} times what it would be with all adapters as depth. The logarithm of the first ratio "
        f"deviates by {off:.2f}."
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
        f"CLIP gets an LR of {found['lr']:.2g}, {100 * found['regret']:.1f} points of errors above the best that was tried; at "
        f"the law's, it has {100 * found['law']:.1f}."
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
        f"LR x steps^p x batch^q x exp(w x share of warm-up) with p = {_power(matters['steps'])}, "
        f"q = {_power(matters['batch'])} and w = {_power(matters['warm-up'])}."
    )


def table_rules() -> list[str]:
    """Laws on the table of small trainings, each judged on families that it was not fitted to."""
    found = results.data("law/fits.json")
    known = {"the law of today": found["today"], **found["forms"], "the best size of each training": found["best size"]}
    lines = [[name, *_gaps(one)] for name, one in known.items()]
    return markdown.table(["", "above the best decay, %", "worst tenth", "than today's law"], lines)


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
