"""Which networks `read_facts` takes for trained: new ones, and ones that others trained."""

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from lab.studies.trained import crepe, fresh
from mlrsnet.facts import is_readable, read_facts, unevenness


def rows(folder: Path, seeds: int = 2) -> list[dict[str, Any]]:
    """A row for each network. New ones are drawn anew for each seed; one alarm counts."""
    found = []
    for origin, makers in fresh.ALL.items():
        for name, make in makers.items():
            drawn = [row(origin, name, _drawn(make, seed), False) for seed in range(seeds)]
            found.append(max(drawn, key=lambda one: one["is_trained"]))
            print(found[-1], flush=True)
    return found + [row("a package", name, weights, True) for name, weights in trained(folder).items()]


def row(origin: str, name: str, weights: Iterable[nn.Parameter], was_trained: bool) -> dict[str, Any]:
    """What is read of some weights. uneven: the median over matrices."""
    known = list(weights)
    facts = read_facts(known)
    matrices = [weight.detach() for weight in known if weight.ndim >= 2 and is_readable(weight)]
    uneven = [one for one in (float(unevenness(matrix.flatten(1))) for matrix in matrices) if not math.isnan(one)]
    return {"origin": origin, "name": name, "numbers": facts.parameters, "depth": facts.depth,
            "was_trained": was_trained, "is_trained": facts.is_trained,
            "uneven": median(uneven) if uneven else None}  # fmt: skip


def _drawn(make: Any, seed: int) -> Iterable[nn.Parameter]:
    torch.manual_seed(seed)
    return make().parameters()  # type: ignore[no-any-return]


def trained(folder: Path) -> dict[str, list[nn.Parameter]]:
    """Weights that ship inside packages. Files of ONNX have their norms folded into the layers before."""
    speaker = torch.load(folder / "resemblyzer" / "pretrained.pt", map_location="cpu", weights_only=True)["model_state"]
    voice = torch.jit.load(folder / "silero_vad" / "data" / "silero_vad.jit")  # type: ignore[no-untyped-call]
    found = {f"CREPE, {size}": list(crepe.load(folder, size).parameters()) for size in crepe.WIDTHS}
    found["CREPE, full, two layers frozen"] = list(crepe.load(folder, "full", 3).parameters())
    found["Resemblyzer"] = _parameters(
        weight for name, weight in speaker.items() if name.startswith(("lstm", "linear"))
    )
    found["Silero"] = _parameters(voice.parameters())
    for file in sorted(folder.glob("rapidocr*/models/*.onnx")):
        found[f"{file.parts[-3]}, {file.stem}"] = _parameters(_initializers(file))
    return found


def _parameters(tensors: Iterable[Tensor]) -> list[nn.Parameter]:
    return [nn.Parameter(tensor.detach().clone()) for tensor in tensors]


def _initializers(file: Path) -> list[Tensor]:
    """Weights of a file of ONNX, some of which are constants there; scalars and shapes left out."""
    import onnx

    graph = onnx.load(file).graph
    constants = [
        one.attribute[0].t for one in graph.node if one.op_type == "Constant" and one.attribute[0].HasField("t")
    ]
    arrays = [onnx.numpy_helper.to_array(one) for one in [*graph.initializer, *constants]]
    return [torch.tensor(one) for one in arrays if one.ndim and one.dtype == "float32"]
