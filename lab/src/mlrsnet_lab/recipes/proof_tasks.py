"""The tasks of the recipe `proof`, each as it is trained without a schedule.

A task has a usual LR, which is 1 in its grid: what one would try first with its optimizer. Fine-tuning on the same has a tenth
of it. Prices in dollars need larger ones: Adam moves an output by about its LR in a step.
"""

from dataclasses import dataclass
from typing import Any

from mlrsnet_lab.spec import RunSpec

Fields = dict[str, Any]
WARM = 0.05
USUAL_LR = {"sgd": 0.1, "sgdm": 0.01, "adam": 1e-3, "adamw": 1e-3}
NORMALISED = ("small_cnn", "resnet18", "mobilenetv2", "shufflenetv2")
"""Networks with batch norm, for which L-DoG's authors advise a larger first step."""


@dataclass(frozen=True)
class ProofTask:
    """A column: its training, its usual LR, and the steps of its warm-up."""

    name: str
    spec: RunSpec
    lr: float
    warmup_steps: int

    @property
    def adaptive(self) -> bool:
        """Whether its optimizer is Adam or AdamW."""
        return self.spec.optimizer.startswith("adam")

    @property
    def batch_norm(self) -> bool:
        """Whether its network has batch norms."""
        return self.spec.model in NORMALISED


def task(name: str, steps: int, *, lr: float | None = None, **fields: Any) -> ProofTask:
    """`steps`: of an epoch."""
    spec = RunSpec(**fields)
    return ProofTask(name, spec, lr or USUAL_LR[spec.optimizer], max(1, round(WARM * steps * spec.epochs)))


def _mlp(width: int, depth: int, **options: Any) -> Fields:
    return {"model": "mlp", "model_options": {"width": width, "depth": depth, **options}}


def _gpt(layers: int, width: int, length: int = 64, **options: Any) -> Fields:
    sizes = {"layers": layers, "width": width, "length": length, **options}
    return {"model": "transformer", "model_options": sizes, "optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 1.0}


LSTM: Fields = {"model": "lstm", "model_options": {"layers": 1, "hidden": 128, "dropout": 0.0}, "clip_norm": 0.25}
SHAKESPEARE: Fields = {
    "task": "tinyshakespeare",
    "batch_size": 32,
    "sequence_length": 32,
    "epochs": 1,
    "weight_decay": 0.0,
}
RESNET: Fields = {"model": "resnet18", "batch_size": 128, "epochs": 30}
SMALL: Fields = {"model": "small_cnn", "epochs": 10}
SIXTEEN: Fields = {"size": 16, "fraction": 0.2}
WIKIPEDIA: Fields = {"task": "wikitext2-chars", "sequence_length": 64, "batch_size": 16, "epochs": 1}
CNN: Fields = {"model": "small_cnn", "model_options": {"width": 32}}
HANDWRITTEN: Fields = {"task": "mnist", **CNN}
GOOD: Fields = {"optimizer": "sgdm", "lr": 0.05, "schedule": "cosine", "schedule_options": {"warmup": WARM}}
"""How networks are trained that are fine-tuned later."""

SEVEN = (
    task("Digits, MLP, SGD", 18, task="digits", model="mlp", epochs=10),
    task("Fashion-MNIST, MLP, SGD", 171, task="fashion_mnist", task_options={"fraction": 0.2}, model="mlp", epochs=5),
    task(
        "SVHN 16x16, CNN, SGDM",
        140,
        task="svhn",
        task_options=SIXTEEN | {"fraction": 0.5},
        optimizer="sgdm",
        **SMALL,
    ),
    task("CIFAR-10 16x16, CNN, SGD", 140, task="cifar10", task_options=SIXTEEN, **SMALL),
    task(
        "Shakespeare, transformer, AdamW",
        245,
        model="transformer",
        model_options={"layers": 2, "width": 64, "length": 64},
        optimizer="adamw",
        **SHAKESPEARE | {"batch_size": 64, "sequence_length": 64, "weight_decay": 0.1},
    ),
    task("Shakespeare, LSTM, SGD", 980, lr=1.0, **SHAKESPEARE, **LSTM),
    task("Shakespeare, LSTM, Adam", 980, optimizer="adam", **SHAKESPEARE, **LSTM),
)
"""Those of the recipe `universal-lstm`."""

TABLES = (
    task(
        "Flights, MLP, SGDM",
        204,
        task="flights",
        task_options={"fraction": 0.1},
        optimizer="sgdm",
        batch_size=128,
        epochs=10,
        **_mlp(256, 2),
    ),
    task(
        "Diamonds in dollars, MLP, Adam",
        336,
        lr=0.01,
        task="diamonds",
        optimizer="adam",
        weight_decay=0.0,
        batch_size=128,
        epochs=6,
        **_mlp(128, 2),
    ),
    task(
        "Weather, MLP, AdamW",
        112,
        task="weather",
        optimizer="adamw",
        weight_decay=0.01,
        batch_size=128,
        epochs=15,
        **_mlp(256, 2),
    ),
)
SENTENCES = (
    task(
        "Snippets, transformer, AdamW",
        296,
        task="snippets",
        model="text_classifier",
        optimizer="adamw",
        weight_decay=0.01,
        batch_size=64,
        epochs=2,
    ),
    task("Wikipedia, GPT 2 x 64, AdamW", 421, task_options={"fraction": 0.04}, **WIKIPEDIA, **_gpt(2, 64)),
    task("Wikipedia, GPT 4 x 128, AdamW", 210, task_options={"fraction": 0.02}, **WIKIPEDIA, **_gpt(4, 128)),
)
PICTURES = (
    task(
        "CIFAR-10 16x16, ViT, AdamW",
        140,
        task="cifar10",
        task_options=SIXTEEN,
        model="vit",
        optimizer="adamw",
        weight_decay=0.05,
        epochs=5,
    ),
    task(
        "Fashion-MNIST, MLP of 12 layers, SGDM",
        171,
        task="fashion_mnist",
        task_options={"fraction": 0.2},
        optimizer="sgdm",
        epochs=5,
        **_mlp(128, 11, init="he"),
    ),
    task(
        "CIFAR-10 16x16, MobileNetV2, SGDM",
        140,
        task="cifar10",
        task_options=SIXTEEN,
        model="mobilenetv2",
        model_options={"width": 0.25},
        optimizer="sgdm",
        epochs=3,
    ),
)
FINE_TUNING = (
    task(
        "Fine-tuning on the same, CNN, AdamW",
        234,
        lr=1e-4,
        task_options={"size": 14, "begin": 0.5, "fraction": 0.75},
        optimizer="adamw",
        weight_decay=0.01,
        epochs=3,
        start={**HANDWRITTEN, **GOOD, "task_options": {"size": 14, "fraction": 0.5}, "epochs": 15, "lr": 0.2},
        **HANDWRITTEN,
    ),
    task(
        "Fine-tuning on other classes, CNN, SGDM",
        93,
        task="cifar10",
        task_options={"size": 16, "classes": [6, 7, 8, 9], "fraction": 0.2},
        optimizer="sgdm",
        batch_size=32,
        epochs=8,
        start={
            "task": "cifar10",
            "task_options": {"size": 16, "classes": [0, 1, 2, 3, 4, 5]},
            "epochs": 8,
            **CNN,
            **GOOD,
        },
        **CNN,
    ),
)
SHORT = (*SEVEN, *TABLES, *SENTENCES, *PICTURES, *FINE_TUNING)

LARGER = (
    task(
        "Fashion-MNIST, MLP 12 x 1024, SGDM",
        171,
        task="fashion_mnist",
        task_options={"fraction": 0.2},
        optimizer="sgdm",
        epochs=3,
        **_mlp(1024, 11, init="he"),
    ),
    task("Wikipedia, GPT 6 x 256, AdamW", 315, task_options={"fraction": 0.03}, **WIKIPEDIA, **_gpt(6, 256)),
    task(
        "CIFAR-10 16x16, ResNet-18, SGDM",
        62,
        task="cifar10",
        task_options=SIXTEEN | {"fraction": 0.1},
        model="resnet18",
        optimizer="sgdm",
        epochs=3,
    ),
)
"""For the recipe `larger`: at least 20 times the weights of the largest network that the law was fitted to."""


def _cifar(name: str, epochs: int, optimizer: str, steps: int = 382, **fields: Any) -> ProofTask:
    """382 steps: 49,000 pictures in batches of 128."""
    return task(name, steps, **{**RESNET, "task": "cifar10", "epochs": epochs, "optimizer": optimizer, **fields})


TREEBANK: Fields = {
    "task": "ptb",
    "model_options": {"layers": 3},
    "batch_size": 32,
    "epochs": 40,
    "weight_decay": 5e-6,
    **{key: LSTM[key] for key in ("model", "clip_norm")},
}
PAPER = (
    *(
        _cifar(f"CIFAR-10, ResNet-18, {optimizer.upper()}, {epochs} epochs", epochs, optimizer)
        for epochs in (10, 30, 200)
        for optimizer in ("sgd", "sgdm")
    ),
    _cifar("CIFAR-100, ResNet-18, SGDM", 30, "sgdm", task="cifar100"),
    _cifar("TinyImageNet subset, ResNet-18, SGDM", 30, "sgdm", 109, task="tinyimagenet"),
    _cifar("CIFAR-10, ShuffleNetV2, SGDM", 30, "sgdm", model="shufflenetv2"),
    _cifar("CIFAR-10, MobileNetV2, SGDM", 30, "sgdm", model="mobilenetv2"),
    task("Penn Treebank, 3-layer LSTM, SGD", 829, lr=10.0, optimizer="sgd", **TREEBANK),
    task("Penn Treebank, 3-layer LSTM, Adam", 829, optimizer="adam", **TREEBANK),
    task(
        "Wikipedia, 10-million GPT, AdamW",
        658,
        task="wikitext2-chars",
        sequence_length=256,
        batch_size=64,
        epochs=5,
        **_gpt(6, 384, 256, heads=6),
    ),
)
DIGITS: Fields = {"task": "digits", "task_options": {"classes": [0, 1, 2]}, "epochs": 1}
SMOKE = (
    task("Breast cancer, MLP, SGDM", 7, task="breast-cancer", optimizer="sgdm", epochs=2, **_mlp(16, 1)),
    task("Diabetes, MLP, Adam", 5, lr=0.1, task="diabetes", optimizer="adam", epochs=2, **_mlp(16, 1)),
    task(
        "Digits, fine-tuning, CNN, AdamW",
        5,
        lr=1e-4,
        optimizer="adamw",
        start={**DIGITS, **SMALL, **GOOD, "epochs": 2},
        **(SMALL | DIGITS),
    ),
)
TASKS: dict[str, tuple[ProofTask, ...]] = {"smoke": SMOKE, "short": SHORT, "paper": PAPER}
