"""Keep of the runs in results/ what tables and pictures read. The raw runs stay in git's history: results/README.md says where.

    python -m tools.thin_records

Makes all tables and pictures, and notes whose epochs and traces they read. Those of all other runs are dropped, and a trace keeps
`POINTS` steps, evenly spaced, the first and the last among them. Then everything is made again from what is left.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from experiments import documents, pictures, results
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.records import Record, packs, text

POINTS = 1000


def read_by_tables() -> dict[Path, set[str]]:
    """Which of a run's epochs and trace are looked at, by its folder."""
    found: dict[Path, set[str]] = defaultdict(set)

    def watched(run: Record, name: str) -> Any:
        value = object.__getattribute__(run, name)
        if name in ("epochs", "trace"):
            found[object.__getattribute__(run, "folder")].add(name)
        return value

    with mock.patch.object(Record, "__getattribute__", watched):
        for path in documents.documents():
            documents.filled(path)
        pictures.write()
    return found


def thinned(trace: dict[str, list[float]]) -> dict[str, list[float]]:
    """A trace of at most `POINTS` steps.

    >>> found = thinned({"step": list(range(5000)), "lr": [0.5] * 5000})
    >>> len(found["step"]), len(found["lr"]), found["step"][0], found["step"][-1]
    (1000, 1000, 0, 4999)
    """
    length = max(map(len, trace.values()), default=0)
    if length <= POINTS:
        return trace
    kept = np.unique(np.linspace(0, length - 1, POINTS).round().astype(int))
    return {name: [values[place] for place in kept] for name, values in trace.items() if len(values) == length}


def thin(path: Path, read: dict[Path, set[str]]) -> None:
    """Write a pack with what is read of its runs."""
    lines = []
    for place, line in packs.index(path).items():
        run = text.loads(line)
        wanted = read.get(path.parent / place, set())
        kept = {"folder": place, "record": run["record"]}
        diverged = run["record"].get("result", {}).get("train_loss") is None  # its last loss stands in the epochs only
        if ("epochs" in wanted or diverged) and "epochs" in run:
            kept["epochs"] = run["epochs"]
        if "trace" in wanted and "trace" in run:
            kept["trace"] = thinned(run["trace"])
        lines.append(text.dumps(kept | {"sha256": packs._digest(kept)}))
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def main() -> None:
    """Thin all packs."""
    read = read_by_tables()
    for path in sorted(results.RESULTS.glob(f"**/{packs.PACK}")):
        thin(path, read)
    results.forget()
    documents.made.cache_clear()
    for changed in (*documents.write(), *pictures.write()):
        print(changed.relative_to(results.ROOT))


if __name__ == "__main__":
    main()
