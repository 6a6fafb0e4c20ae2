"""Where a run trains: choosing the device by name, describing it, and making the run repeatable on it."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


def resolve(device: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:N` into a device that exists, or raise."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError:
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {device!r}")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} does not exist: torch sees {torch.cuda.device_count()} CUDA devices; use cpu or auto"
        )
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())  # each of several processes has its own
    return place


def device_name(device: torch.device) -> str:
    """The device as records name it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


@contextmanager
def reproducible(device: torch.device, deterministic: bool, full_fp32: bool = False) -> Iterator[None]:
    """Isolate a run's random state, and choose fast or bit-for-bit repeatable GPU kernels; restore both afterwards.

    `full_fp32`: a GPU's convolutions have all bits of float32, where torch would let them have TF32's.
    """
    on_gpu = device.type == "cuda"
    benchmark, is_deterministic = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    tf32 = torch.backends.cudnn.allow_tf32
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    python = random.getstate()  # packages that are imported on the way may draw from it
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        try:
            if on_gpu:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                torch.backends.cudnn.benchmark = not deterministic
                torch.use_deterministic_algorithms(deterministic)
                torch.backends.cudnn.allow_tf32 = tf32 and not full_fp32
            with torch.cuda.stream(torch.cuda.Stream(device)) if on_gpu else nullcontext():
                yield
        finally:
            random.setstate(python)
            torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = benchmark, tf32
            torch.use_deterministic_algorithms(is_deterministic, warn_only=warn_only)
