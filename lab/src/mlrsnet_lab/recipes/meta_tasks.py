"""Which meta-training tasks matter (Section 4.3, Fig. 10): similarity, scale and architecture; tested on CIFAR-100, ResNet-18.

The paper shows curves without numbers: similarity and architecture matter little, a tenth of the data is worse. It cuts MNIST and
SVHN to 50,000 pictures.
"""

from typing import Any

from mlrsnet_lab.recipes.rows import SCALES, SHORT, SMOKE, Scale, meta_trained, transferred
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


def cells(scale: str) -> list[Cell]:
    """Per factor: the meta-trainings, then the same test with what each has learned."""
    chosen, small = SCALES[scale], scale == "smoke"
    test, found = chosen.spec("cifar100", "resnet18"), []
    for factor, tasks in (SMALL_FACTORS if small else FACTORS).items():
        for name, (task, model, options) in tasks.items():
            own = Scale(chosen.epochs, chosen.batch_size, chosen.lr)
            learned = Cell(
                name, f"{factor}: meta-training", meta_trained(own.spec(task, model, task_options=options), own)
            )
            found.append(learned)
            found.append(
                Cell(f"learned on {name}", factor, transferred(test), learned_in=(learned.row, learned.column))
            )
    return found


RECIPE = Recipe(
    "meta-tasks",
    "Which meta-training tasks matter",
    "Neither the similarity of data nor the network of the meta-training matters much; a tenth of the data is worse.",
    cells,
    notes={
        "all": ("The accuracies on CIFAR-100 are the result; the meta-trainings are shown beside them.",),
        "smoke": (SMOKE,),
        "short": (SHORT,),
        "paper": (
            "SVHN has to be the whole set: a subset of fewer than 73,257 pictures is cut to the same part, not to 50,000.",
        ),
    },
)
