"""The paper's equations, slow and plain, for parity tests. No mlrsnet code is used."""

import math

GATE_ORDERS = {"paper": "ifog", "official-test": "ifgo", "official-train": "ifog"}


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def affine(weight: list[list[float]], bias: list[float], vector: list[float]) -> list[float]:
    return [sum(w * v for w, v in zip(row, vector, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def relu(vector: list[float]) -> list[float]:
    return [max(0.0, v) for v in vector]


def cell(w: dict[str, list], x: list[float], h: list[float], c: list[float], layout: str) -> tuple[list, list]:
    """Appendix B, line by line. The authors' layouts differ in gate order; their meta-train one also in the forget gate."""
    size = len(h)
    i2h = affine(w["i2h.2.weight"], w["i2h.2.bias"], relu(affine(w["i2h.0.weight"], w["i2h.0.bias"], x)))
    h2h = affine(w["h2h.2.weight"], w["h2h.2.bias"], relu(affine(w["h2h.0.weight"], w["h2h.0.bias"], h)))
    total = [a + b for a, b in zip(i2h, h2h, strict=True)]
    gates = {name: total[k * size : (k + 1) * size] for k, name in enumerate(GATE_ORDERS[layout])}
    shift = -1.0 if layout == "official-train" else 0.0
    new_c = [
        sigmoid(gates["f"][j] + shift) * c[j] + sigmoid(gates["i"][j]) * math.tanh(gates["g"][j]) for j in range(size)
    ]
    return [sigmoid(gates["o"][j]) * math.tanh(new_c[j]) for j in range(size)], new_c


def lstm_factors(
    state_dict: dict, features: list[list[float]], layout: str, layers: int, sharpness: float
) -> list[float]:
    """p_t = sigmoid(k (W3 h_t + b3)) for a list of feature vectors, from zero memory."""
    w = {name: tensor.double().tolist() for name, tensor in state_dict.items()}
    size = len(w["out.weight"][0])
    memory = [([0.0] * size, [0.0] * size) for _ in range(layers)]
    factors = []
    for x in features:
        for layer in range(layers):
            own = {k.removeprefix(f"cells.{layer}."): v for k, v in w.items() if k.startswith(f"cells.{layer}.")}
            memory[layer] = cell(own, x, *memory[layer], layout)
            x = memory[layer][0]
        factors.append(sigmoid(sharpness * affine(w["out.weight"], w["out.bias"], x)[0]))
    return factors
