"""The probe that came before this library, beside the library's own runs of the same settings."""

from experiments import markdown, results
from experiments.markdown import span
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import metric_text


def table() -> list[str]:
    """Test accuracy of the last epoch, and the LR after 17 and 33 epochs; ours as a range over seeds."""
    found = results.data("probe/probe.json")
    cosine = results.runs("horizon_short", "CIFAR-10", "Cosine 0.1")
    lines = [["cosine from 0.1, 30 epochs", metric_text(found["cosine_from_0_1"]["last"]), _ends(cosine), "", ""]]
    for one in found["algorithm_1"]:
        rates = one.get("lr", {})
        probe_lrs = ", ".join(f"{rates[epoch]:g}" for epoch in ("1", "17", "33") if epoch in rates)
        ours = _ours(one)
        own_lrs = ", ".join(filter(None, (span(results.lr_at(run, epoch) for run in ours) for epoch in (1, 17, 33))))
        lines.append([_name(one), metric_text(one["last"]), _ends(ours), probe_lrs, own_lrs])
    whole = " and ".join(metric_text(last) for last in found["learned_from_whole_trainings"]["last"])
    lines.append(
        [
            "learned from whole trainings, 30 epochs",
            whole,
            _ends(results.runs("horizon_short", "CIFAR-10", "Full horizon")),
            "",
            "",
        ]
    )
    return markdown.table(["", "probe (%)", "ours (%)", "probe's LR after 1, 17, 33 epochs", "ours"], lines)


def _name(one: dict[str, object]) -> str:
    return f"Algorithm 1, {one['row']}, {one['epochs']} epochs"


def _ours(one: dict[str, object]) -> list[Record]:
    if one["epochs"] == 200:
        return results.runs("table1_paper", "CIFAR-10", "MLR-SNet")
    return results.runs("sensitivity_short", "CIFAR-10", str(one["row"]))


def _ends(runs: list[Record]) -> str:
    ends = [run.result["last"] for run in runs]
    return " to ".join(dict.fromkeys(map(metric_text, (min(ends), max(ends)))))
