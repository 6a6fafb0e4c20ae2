"""Changed and made-up files for every reader, as long as you like: does each end in one clear line, in time and within memory?

    pip install --editable '.[dev,fuzz]'
    python -m tools.fuzz [--minutes 60] [--only pack]

atheris follows which lines of the package an input reaches, and changes those that reach new ones. Each reader is fuzzed in a
process of its own. Figures are added to results/fuzz/fuzz.json. Inputs that ended badly go to fuzz-found/, and one small input
for every way in which a reader ended to tests/fuzz/corpus.zip, which the tests replay.
"""

import argparse
import hashlib
import importlib
import json
import os
import platform
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]  # nothing of mlrsnet is imported here: atheris must see it imported
RECORD = ROOT / "results" / "fuzz" / "fuzz.json"
FOUND = ROOT / "fuzz-found"
FOLLOWED = ("mlrsnet", "numpy.lib", "json", "pickletools", "tarfile", "zipfile")
"""Modules whose lines are followed. The last four may have been imported before."""

HANG_SECONDS = 10
KILL_SECONDS = 30
MORE_MEMORY = 2 * 2**30
"""Address space that reading may take beyond that of a process that has imported everything."""

LONGEST_INPUT, LONGEST_KEPT, MOST_KEPT = 20_000, 4_000, 15
TOKENS = (
    "NaN", "Infinity", "1e400", "-1", "null", "true", "[[[[[[[[", '{"a":', '"../', '"/etc/', '"./', "\\ud800", "\\u0000", "folder",
    "record", "epochs", "trace", "spec", "status", "format", "start", "schedule", "options", "seed", "descr", "fortran_order",
    "shape", "<f8", "|O", "<U9", "(1000000000000,)", "PK\\x01\\x02", "PK\\x05\\x06", "PK\\x06\\x06", "ctorch\\x0aTensor\\x0a",
    "c__builtin__\\x0abytearray\\x0a", "cos\\x0asystem\\x0a", "c_codecs\\x0aencode\\x0a",
    "\\x8a\\x08\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x7f",
    "\\x85", "R", "\\x81", "Q", "q\\x00", "h\\x00", "hf://", "@",
    "NA", "\\x09", "\\xff\\xd8", "IHDR", "IDAT", "II*\\x00", "RIFF", "WEBP",
)  # fmt: skip
"""Words that random bytes would hardly find."""


def followed_readers() -> Any:
    """The module of all readers, imported so that atheris can follow them."""
    import atheris

    with atheris.instrument_imports(include=list(FOLLOWED)):
        for module in ("json.decoder", "pickletools", "tarfile", "zipfile"):
            importlib.reload(importlib.import_module(module))
        return importlib.import_module("tests.fuzz.readers")


def fuzz_one(readers: Any, name: str, seconds: float, folder: Path) -> None:
    """Fuzz one reader in this process until the time is over, writing its figures into the folder."""
    import atheris

    changes, corpus = (importlib.import_module(f"tests.fuzz.{name}") for name in ("changes", "corpus"))
    verdict = readers.verdict
    reader = readers.READERS[name]
    seeds, grown, sandbox = (folder / part for part in ("seeds", "grown", "sandbox"))
    for place in (seeds, grown, sandbox):
        place.mkdir()
    for content in [*reader.seeds(), *corpus.kept(name)]:
        (seeds / _digest(content)).write_bytes(content)
        verdict(reader, content, sandbox)  # whatever is imported or made once comes before the limit
    _limit_memory()
    figures: dict[str, Any] = {"inputs": 0, "crashes": Counter(), "hangs": 0, "slowest": 0.0, "ends": {}}
    written = time.perf_counter()

    def one(content: bytes) -> None:
        nonlocal written
        start = time.perf_counter()
        good, told = verdict(reader, content, sandbox)
        now = time.perf_counter()
        figures["inputs"] += 1
        figures["slowest"] = max(figures["slowest"], now - start)
        if not good:
            figures["crashes"][_shape(told)] += 1
        if now - start > HANG_SECONDS:
            figures["hangs"] += 1
        if not good or now - start > HANG_SECONDS:
            _keep_bad(name, content, told)
        elif len(content) <= LONGEST_KEPT:
            before = figures["ends"].get(_shape(told))
            if before is None or len(content) < len(before):
                figures["ends"][_shape(told)] = content
        if now - written > 2:
            written = now
            _write(folder, figures)

    options = [
        f"-max_total_time={int(seconds)}",
        f"-timeout={KILL_SECONDS}",
        "-rss_limit_mb=0",
        f"-max_len={LONGEST_INPUT}",
    ]
    words = folder / "tokens"
    words.write_text("".join(f'"{_quoted(token)}"\n' for token in TOKENS))
    options += [f"-dict={words}", f"-artifact_prefix={folder}/", "-verbosity=0", "-print_final_stats=0", "-reload=0"]

    def change(content: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        made = changes.changed_values(content, chance) if seed % 3 == 0 else atheris.Mutate(content, most)
        return bytes(made[:most])

    atheris.Setup([sys.argv[0], *options, str(grown), str(seeds)], one, custom_mutator=change)
    try:
        atheris.Fuzz()
    finally:
        _write(folder, figures)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_MEMORY,) * 2)


def _write(folder: Path, figures: dict[str, Any]) -> None:
    plain = {**figures, "ends": {shape: content.hex() for shape, content in figures["ends"].items()}}
    (folder / "figures.part").write_text(json.dumps(plain))
    (folder / "figures.part").replace(folder / "figures.json")


def _keep_bad(name: str, content: bytes, told: str) -> None:
    place = FOUND / _slug(name)
    place.mkdir(parents=True, exist_ok=True)
    shape = _digest(_shape(told).encode())
    if not (place / f"{shape}.txt").exists():
        (place / shape).write_bytes(content)
        (place / f"{shape}.txt").write_text(told)


def _shape(told: str) -> str:
    """How an input ended, without its numbers and names: equal ends are kept once."""
    return re.sub(r"\d+", "0", re.sub(r"'[^']*'|\"[^\"]*\"|got .*", "_", told))[:120]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _quoted(token: str) -> str:
    return token.replace("\\u", "\\\\u").replace('"', '\\"')


def _slug(name: str) -> str:
    return re.sub(r"\W+", "_", name)


def fuzz_apart(readers: Any, name: str, seconds: float) -> dict[str, Any]:
    """The figures of one reader, fuzzed in a child, which may die; then another goes on for the rest of the time."""
    total: dict[str, Any] = {"inputs": 0, "crashes": {}, "hangs": 0, "slowest": 0.0, "seconds": 0.0, "ends": {}}
    before = _cpu_seconds()
    while seconds - total["seconds"] > 1:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=_memory_disk()) as place:
            child = os.fork()  # to import everything takes longer than to fuzz some readers
            if not child:
                _as_child(readers, name, seconds - total["seconds"], Path(place))
            os.waitpid(child, 0)
            _add(total, name, Path(place))
        total["seconds"] += time.perf_counter() - start
    return {**total, "cpu_seconds": _cpu_seconds() - before}


def _as_child(readers: Any, name: str, seconds: float, folder: Path) -> None:
    try:
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        fuzz_one(readers, name, seconds, folder)
    finally:
        os._exit(0)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_disk() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _add(total: dict[str, Any], name: str, folder: Path) -> None:
    path, log = folder / "figures.json", (folder / "log").read_text(errors="replace")[-2000:]
    figures: dict[str, Any] = {"inputs": 0, "crashes": {}, "hangs": 0, "slowest": 0, "ends": {}}
    if path.is_file():
        figures = json.loads(path.read_text())
    total["inputs"] += figures["inputs"]
    total["hangs"] += figures["hangs"]
    total["slowest"] = max(total["slowest"], figures["slowest"])
    for shape, count in figures["crashes"].items():
        total["crashes"][shape] = total["crashes"].get(shape, 0) + count
    for shape, content in figures["ends"].items():
        total["ends"][shape] = min(total["ends"].get(shape, content), content, key=len)
    for bad in folder.glob("*-*"):  # libFuzzer writes the input that ended the process: crash-..., timeout-...
        kind = bad.name.split("-")[0]
        _keep_bad(name, bad.read_bytes(), f"the process ended: {kind}: {log}")
        total["hangs" if kind == "timeout" else "inputs"] += 1
        if kind != "timeout":
            total["crashes"][f"the process ended: {kind}"] = total["crashes"].get(f"the process ended: {kind}", 0) + 1
    if not figures["inputs"]:
        raise RuntimeError(f"fuzzing {name} did not begin: {log}")


def smallest(ends: dict[str, str]) -> list[bytes]:
    """One small input for each way in which a reader ended."""
    return sorted((bytes.fromhex(content) for content in ends.values()), key=lambda one: (len(one), one))[:MOST_KEPT]


def main() -> None:
    """Fuzz every reader for its share of the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="for all of them together (default: %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="READER", help="only these")
    arguments = parser.parse_args()
    readers, corpus = followed_readers(), importlib.import_module("tests.fuzz.corpus")
    names = arguments.only or list(readers.READERS)
    for name in names:
        found = fuzz_apart(readers, name, 60 * arguments.minutes / len(names))
        corpus.keep(name, smallest(found.pop("ends")))
        add_to_record(name, found)
        crashes = sum(found["crashes"].values())
        print(f"{name}: {found['inputs']:,} inputs, {crashes} crashes, {found['hangs']} hangs", flush=True)


def add_to_record(name: str, found: dict[str, Any]) -> None:
    """Add a reader's figures to those of earlier runs. After a repair, delete the record to begin anew."""
    readers = json.loads(RECORD.read_text())["readers"] if RECORD.is_file() else {}
    before = readers.get(name, {"crashes": {}})
    added = {key: round(before.get(key, 0) + found[key], 2) for key in ("inputs", "hangs", "seconds", "cpu_seconds")}
    slowest = round(max(before.get("slowest", 0), found["slowest"]), 2)
    readers[name] = {
        **added,
        "slowest": slowest,
        "crashes": dict(Counter(before["crashes"]) + Counter(found["crashes"])),
    }
    total = {
        key: round(sum(one[key] for one in readers.values()), 1)
        for key in ("inputs", "hangs", "seconds", "cpu_seconds")
    }
    total["crashes"] = sum(sum(one["crashes"].values()) for one in readers.values())
    rules = {"hang_seconds": HANG_SECONDS, "memory_beyond_imports": MORE_MEMORY, "longest_input": LONGEST_INPUT}
    tools = {one: version(one) for one in ("atheris", "numpy", "pillow", "safetensors", "torch")}
    machine = {"python": platform.python_version(), "machine": platform.machine(), "device": "cpu", **tools}
    commit = importlib.import_module("mlrsnet_lab.records").commit()
    whole = {"commit": commit, "total": total, "rules": rules, "versions": machine, "readers": readers}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
