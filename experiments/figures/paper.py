"""What each figure of the paper shows, drawn from the records of scale cpu."""

from collections.abc import Iterable, Mapping
from functools import partial

from experiments import results
from experiments.drawing import PICTURES
from experiments.figures import alone
from experiments.figures.figure import Figure, period, trainings, variants
from experiments.figures.looks import BLUES, DASHED, DOTTED, REDS, Look
from experiments.figures.panels import Alone, Bars, Line, Panel, lines, share
from mlrsnet_lab.recipes import ablation, epochs, fig1, meta_tasks, networks, phases, table1, table3, transfer
from mlrsnet_lab.recipes.rows import COSINE, DEFAULT, META_ROW, SCALES, TRANSFERRED
from mlrsnet_lab.report.runs import Run

HAND = ("Fixed", "MultiStep", "Exponential", "SGDR")
VAL = ("SGD, val strategy", "Adam, val strategy")
LEARNED = tuple(f"MLR-SNet{end}" for end in SCALES["cpu"].for_meta_training)
ENDS = tuple(SCALES["cpu"].for_transfer)
MOVED = tuple(f"{TRANSFERRED}{end}" for end in ENDS)
TEXT_ENDS = ("", *(f", T_val {every}" for every in table3.EVERY["cpu"][1:]))
ON_TEXT = tuple(f"MLR-SNet{end}" for end in TEXT_ENDS)
TEXT = fig1.TEXT[3]


def transfers(recipe: str, columns: Mapping[str, str]) -> list[Panel]:
    """Test accuracies under the paper's schedules, with momentum, and under transferred ones."""
    rows = (*HAND, "Adam", COSINE, *MOVED, DEFAULT)
    return [Panel(f"{title}: accuracy (%)", lines(recipe, column, rows)) for column, title in columns.items()]


def _predicted() -> list[Line]:
    """Fig. 1f: what was learned on CIFAR-10, elsewhere."""
    return [
        *lines("transfer", fig1.PREDICTED, MOVED),
        *lines("fig1", fig1.TEXT[2], MOVED, DASHED),
        *lines("transfer", TEXT, MOVED, DOTTED),
    ]


def _nets(column: str, title: str, ends: Iterable[str], higher: bool) -> Panel:
    """Fig. 12: an LSTM in the reds of MLR-SNet, an MLP in blues."""
    found = []
    for net, colours, width in (("LSTM", REDS, 2.0), ("MLP", BLUES, 1.6)):
        for end in ends:
            every = int(period(end).split()[-1])
            found.append(
                Line("lstm-or-mlp", column, f"{net}{end}", Look(f"{net}, T_val {every}", colours[every], width))
            )
    return Panel(title, found, higher=higher)


TABLE1_ROWS = (*HAND, "Adam", "L4", "HD", "RTHO", COSINE, table1.HIGH_COSINE, *LEARNED, DEFAULT)
TABLE3_ROWS = (*VAL, "L4", "HD", "RTHO", COSINE, *ON_TEXT, DEFAULT)
TIMED = [
    *lines("time", "CIFAR-10", (*HAND, "Adam", "L4", "HD", "RTHO")),
    *(Line("time", "CIFAR-10", row, Look(row, REDS[100])) for row in (META_ROW, TRANSFERRED)),
    *lines("time", "CIFAR-10", (DEFAULT,)),
]
HORIZONS = {
    f"{horizon} epochs": f"{times} the epochs"
    for horizon, times in zip(epochs.HORIZONS, ("half", "twice", "six times"), strict=True)
}
FACTORS = meta_tasks.BY_SCALE["cpu"]

FIGURES: dict[str, Figure] = {
    "fig01": Figure(
        "LR over the training: hand-designed, learned, and predicted by what was learned on CIFAR-10",
        [
            [
                Panel("(a) hand-designed, pictures", lines("table1", "CIFAR-10", HAND), share, "% of training", None),
                Panel("(b) hand-designed, text", lines("table3", "2-layer LSTM", VAL), share, "% of training", None),
                None,
            ],
            [
                Panel(
                    "(d) learned on CIFAR-10\n(dashed: CIFAR-100)",
                    [*lines("table1", "CIFAR-10", LEARNED), *lines("table1", "CIFAR-100", LEARNED, DASHED)],
                    share,
                    "% of training",
                    None,
                ),
                Panel(
                    "(e) learned on text, 2 layers\n(dashed: 3 layers)",
                    [*lines("table3", "2-layer LSTM", ON_TEXT), *lines("table3", "3-layer LSTM", ON_TEXT, DASHED)],
                    share,
                    "% of training",
                    None,
                ),
                Panel(
                    "(f) predicted: TinyImageNet\n(text: dashed 2, dotted 3 layers)",
                    _predicted(),
                    share,
                    "% of training",
                    None,
                ),
            ],
        ],
        5.2,
        ("table1", "table3", "transfer", "fig1"),
    ),
    "fig03": Figure(
        "Training loss, test accuracy and LR of Table 1's trainings",
        [
            trainings("table1", "CIFAR-10", "CIFAR-10", TABLE1_ROWS, text=False),
            trainings("table1", "CIFAR-100", "CIFAR-100", TABLE1_ROWS, text=False),
        ],
        6.2,
        ("table1",),
    ),
    "fig04": Figure(
        "Training perplexity, test perplexity and LR of Table 3's trainings",
        [trainings("table3", f"{n}-layer LSTM", f"{n} layers", TABLE3_ROWS, text=True) for n in (2, 3)],
        6.0,
        ("table3",),
    ),
    "fig05": Figure(
        "Test accuracy by the size of the schedule's network and by the LR of its Adam",
        [
            [
                variants(
                    f"Size, {period(end)}: accuracy (%)",
                    "ablation",
                    f"Architecture{end}",
                    {row: row for row in ablation.ARCHITECTURES},
                ),
                variants(
                    f"LR of Adam, {period(end)}: accuracy (%)",
                    "ablation",
                    f"LR of the meta-optimizer{end}",
                    {f"Adam at {rate:g}": f"{rate:g}" for rate in ablation.META_LRS},
                ),
            ]
            for end in ENDS
        ],
        5.6,
        ("ablation",),
    ),
    "fig06": Figure(
        "LR of each network alone at a loss of 5, and test accuracy by how many networks are transferred",
        [
            [
                Alone(f"(a) LR / gamma of each network, {period(end)}", alone.networks, f"{META_ROW}{end}"),
                variants(
                    f"(b) test accuracy (%), {period(end)}",
                    "phases",
                    "CIFAR-100",
                    {f"k = {k}{end}": f"k = {k}" for k in phases.COUNTS},
                ),
            ]
            for end in ENDS
        ],
        5.6,
        ("phases",),
    ),
    "fig07": Figure(
        "Test accuracy on CIFAR-100 over half, twice and six times the horizon",
        [transfers("epochs", HORIZONS)],
        3.6,
        ("epochs",),
    ),
    "fig08": Figure(
        "Test results on SVHN, TinyImageNet and Penn Treebank under transferred schedules and others",
        [
            [
                *transfers("transfer", {name: name for name in transfer.PICTURES}),
                Panel(
                    "text, 3 layers: perplexity", lines("transfer", TEXT, (*VAL, COSINE, *MOVED, DEFAULT)), higher=False
                ),
            ]
        ],
        3.8,
        ("transfer",),
    ),
    "fig09": Figure(
        "Test accuracy of three networks on CIFAR-10 under transferred schedules and others",
        [transfers("networks", {name: name for name in networks.NETWORKS})],
        3.6,
        ("networks",),
    ),
    "fig10": Figure(
        "Test accuracy on CIFAR-100 by what the schedule was learned on",
        [
            [
                variants(
                    f"{factor}, {period(end)} (%)",
                    "meta-tasks",
                    factor,
                    {f"learned on {name}{end}": name for name in tasks},
                )
                for factor, tasks in FACTORS.items()
            ]
            for end in ENDS
        ],
        5.6,
        ("meta-tasks",),
    ),
    "fig11": Figure(
        "Seconds per epoch of every method, and loss along random rays from where trainings ended",
        [
            [
                Bars("(b) seconds per epoch", TIMED),
                *(
                    Panel(
                        f"(c) {name} loss along rays",
                        lines("width", "CIFAR-100", (*HAND, "Adam", *LEARNED, DEFAULT)),
                        partial(Run.ray, part=part),
                        "distance",
                        None,
                    )
                    for part, name in (("train", "training"), ("test", "test"))
                ),
            ]
        ],
        3.8,
        ("time", "width"),
    ),
    "fig12": Figure(
        "Test results with an LSTM and with an MLP as the schedule's network, where it was learned and transferred",
        [
            [
                _nets(
                    "Meta-training: CIFAR-10",
                    "learned on CIFAR-10: accuracy (%)",
                    SCALES["cpu"].for_meta_training,
                    True,
                ),
                _nets("Meta-training: Penn Treebank", "learned on text: perplexity", TEXT_ENDS, False),
            ],
            [
                _nets("Transferred: TinyImageNet", "transferred to TinyImageNet: accuracy (%)", ENDS, True),
                _nets("Transferred: Penn Treebank", "transferred to text, 3 layers: perplexity", ENDS, False),
            ],
        ],
        6.0,
        ("lstm-or-mlp",),
    ),
    "fig13": Figure(
        "Test perplexity over Adam, where the schedule was learned and transferred",
        [
            [
                Panel(
                    f"{layers} layers, {how.removeprefix('MLR-SNet, ')}: perplexity",
                    lines("adam", f"{layers}-layer LSTM", (VAL[1], *(f"{how}{end}" for end in TEXT_ENDS), DEFAULT)),
                    higher=False,
                )
                for layers, how in ((2, META_ROW), (3, TRANSFERRED))
            ]
        ],
        3.6,
        ("adam",),
    ),
}
"""By the picture's name. Figs. 1c and 2 are drawings, and Fig. 11a is ImageNet, which scale cpu lacks."""


def shown(name: str) -> list[str]:
    """The picture on its page, once there is any record."""
    drawn = FIGURES[name].recorded or (PICTURES / f"{name}.png").is_file()
    return [f"![{FIGURES[name].alt}](pictures/{name}.png)"] if drawn else results.NOTHING
