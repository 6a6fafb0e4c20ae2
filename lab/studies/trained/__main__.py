"""Run a part of the study, and write its record in results/trained."""

import argparse
from pathlib import Path

import torch

from lab.studies.trained import known, records, tune
from mlrsnet_lab.records import commit


def tuned(folder: Path, network: str, rows: list[str], seeds: list[int]) -> None:
    """Fine-tunings; those that are in the record are not run again."""
    name = f"pitch_{network}"
    runs = records.read(name)["sessions"] if records.has(name) else []
    for seed in seeds:
        for row in rows:
            if not any((one["row"], one["seed"]) == (row, seed) for one in runs):
                runs.append({"commit": commit(), **tune.run(folder, network, row, seed)})
                print(runs[-1], flush=True)
                records.write(name, {"sessions": runs})


def main() -> None:
    """See the head of the package."""
    parser = argparse.ArgumentParser(prog="python -m lab.studies.trained", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    tune_ = kinds.add_parser("tune")
    tune_.add_argument("folder", type=Path)
    tune_.add_argument("network", choices=tune.NETWORKS)
    tune_.add_argument("--rows", nargs="+", choices=tune.ROWS, default=list(tune.ROWS))
    tune_.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    kinds.add_parser("known").add_argument("folder", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.kind == "tune":
        tuned(chosen.folder, chosen.network, chosen.rows, chosen.seeds)
    else:
        records.write("known", {"commit": commit(), "rows": known.rows(chosen.folder)})


if __name__ == "__main__":
    main()
