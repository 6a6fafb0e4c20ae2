"""Which meta-training tasks matter (Section 4.3, Fig. 10): similarity, scale and architecture; tested on CIFAR-100, ResNet-18.

The paper shows curves without numbers: similarity and architecture matter little, a tenth of the data is worse. It cuts MNIST and
SVHN to 50,000 pictures.
"""

from dataclasses import replace
from typing import Any

from mlrsnet_lab.recipes.rows import CPU, SCALES, SHORT, SMOKE, default, meta_trained, transferred
from mlrsnet_lab.sheets import Cell, Recipe

Tasks = dict[str, tuple[str, str, dict[str, Any]]]
FACTORS: dict[str, Tasks] = {
    "Similarity": {
        "MNIST": ("mnist", "resnet18", {"fraction": 50 / 60}),
        "SVHN": ("svhn", "resnet18", {"fraction": 50_000 / 73_257}),
        "CIFAR-10": ("cifar10", "resnet18", {}),
    },
    "Scale": {
        "1/10 CIFAR-100": ("cifar100", "resnet18", {"fraction": 0.12}),  # 50 per class to train on, 10 held out
        "1/2 CIFAR-100": ("cifar100", "resnet18", {"fraction": 0.52}),  # 250 and 10
        "CIFAR-100": ("cifar100", "resnet18", {}),
    },
    "Architecture": {
        "ResNet-18": ("cifar100", "resnet18", {}),
        "ResNet-34": ("cifar100", "resnet34", {}),
        "ResNet-50": ("cifar100", "resnet50", {}),
    },
}
SMALL_FACTORS: dict[str, Tasks] = {
    "Similarity": {
        "digits 0 to 4": ("digits", "small_cnn", {"classes": [0, 1, 2, 3, 4]}),
        "all digits": ("digits", "small_cnn", {}),
    },
    "Scale": {
        "1/10 corrupted digits": ("digits-c", "small_cnn", {"fraction": 0.1, "size": 8}),
        "corrupted digits": ("digits-c", "small_cnn", {"size": 8}),
    },
    "Architecture": {"small CNN": ("digits", "small_cnn", {}), "MLP": ("digits", "mlp", {})},
}


CPU_FACTORS: dict[str, Tasks] = FACTORS | {
    "Similarity": {name: (task, model, {}) for name, (task, model, _) in FACTORS["Similarity"].items()},
    "Scale": {
        "1/10 CIFAR-100": (
            "cifar100",
            "resnet18",
            {"fraction": 0.058},
        ),  # 19 per class to train on for 190, 10 held out
        "1/2 CIFAR-100": ("cifar100", "resnet18", {"fraction": 0.21}),
        "CIFAR-100": ("cifar100", "resnet18", {}),
    },
}
BY_SCALE = {"smoke": SMALL_FACTORS, "cpu": CPU_FACTORS, "short": FACTORS, "paper": FACTORS}


def cells(scale: str) -> list[Cell]:
    """Per factor: the meta-trainings, then the same test with what each has learned."""
    chosen = SCALES[scale]
    own = replace(chosen, stand_in=None)  # at scale smoke each task has its own network
    periods = own.for_transfer if scale == "cpu" else {"": own}
    test, found = chosen.spec("cifar100", "resnet18"), []
    for factor, tasks in BY_SCALE[scale].items():
        for name, (task, model, options) in tasks.items():
            for end, one in periods.items():
                spec = meta_trained(one.spec(task, model, task_options=options), one)
                learned = Cell(f"{name}{end}", f"{factor}: meta-training", spec)
                there = (learned.row, learned.column)
                tested = Cell(f"learned on {learned.row}", factor, transferred(test), learned_in=there)
                found += [learned, tested]
        if scale == "cpu":
            found.append(default(test, factor))
    return found


RECIPE = Recipe(
    "meta-tasks",
    "Which meta-training tasks matter",
    "Neither the similarity of data nor the network of the meta-training matters much; a tenth of the data is worse.",
    cells,
    notes={
        "all": ("The accuracies on CIFAR-100 are the result; the meta-trainings are shown beside them.",),
        "smoke": (SMOKE,),
        "cpu": (
            *CPU,
            "MNIST, SVHN and CIFAR-10 are cut to 9,000 pictures; the parts of CIFAR-100 have 19,000, 9,500 and 1,900. Deeper "
            "networks are WideResNet-16-1 and -22-1. A tenth of CIFAR-100 has 416 steps, so 4 meta-updates, or 69.",
        ),
        "short": (SHORT,),
        "paper": (
            "SVHN has to be the whole set: a subset of fewer than 73,257 pictures is cut to the same part, not to 50,000.",
        ),
    },
)
