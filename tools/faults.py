"""Kill the lab's commands at random moments, stop them, fill their disk: every continuation must end in the same bits.

`mlrsnet train` and `mlrsnet metatrain` (both objectives) run as real processes, forked from one that has imported torch already.
Half of the kills (SIGKILL) come at a random time. The other half come inside a write: at a random one of all system calls that
write, flush, rename or remove a file, or after half of the bytes. What is left is continued, and killed again, until it ends;
then its record, trace or schedule is compared with that of a process that was left alone, without times. As root on Linux, disks
that are full or turn read-only are real ones, too.

    python -m tools.faults [--kills 50] [--only train] [--seed 0] [--out results/faults/faults.json]
"""

import argparse
import json
import os
import platform
import random
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlrsnet.card import versions
from mlrsnet_lab.records import commit
from tools.faulty_commands import COMMANDS, Command, warm_up
from tools.strikes import Trial, small_disk

RECORD = Path(__file__).parents[1] / "results" / "faults" / "faults.json"
FAULTS = ("SIGKILL", "SIGTERM", "SIGINT", "full disk", "read-only disk")


def try_command(command: Command, root: Path, kills: int, seed: int, disks: bool) -> dict[str, Any]:
    """All that is done to one command."""
    root.mkdir()
    log = root / "log"
    trial = Trial(command, root, log, random.Random(f"{seed} {command.name}"))
    print(f"{command.name}: {trial.seconds:.1f} s, {trial.calls} calls that write", flush=True)
    few = max(1, kills // 5)
    found: dict[str, Any] = {"seconds_alone": round(trial.seconds, 2), "writing_calls": trial.calls}
    found["SIGKILL"] = trial.strikes("kill", kills, trial.kill).told()
    for name in ("SIGTERM", "SIGINT"):
        found[name] = trial.strikes(name, few, trial.at_a_time(signal.Signals[name])).told()
    with small_disk(disks) as disk:
        if disk is not None:
            on_disk = Trial(command, disk, log, trial.chance)
            found["full disk"] = on_disk.strikes("full", few, on_disk.fill_disk).told()
            found["read-only disk"] = on_disk.strikes("locked", few, on_disk.lock_disk).told()
    for what in FAULTS:
        if what in found:
            line = found[what]
            print(f"  {what}: {line['strikes']}, {line['differing_bits']} bits differ, {line['seconds']} s", flush=True)
    return found


def main() -> None:
    """Try the commands, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="of each command; a fifth of it for every other fault")
    parser.add_argument("--only", choices=sorted(COMMANDS), action="append")
    parser.add_argument("--without-disks", dest="disks", action="store_false", help="fill and lock no disk")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORD)
    arguments = parser.parse_args()
    warm_up()
    begin, found = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as root, suppress(KeyboardInterrupt):
        for name in arguments.only or COMMANDS:
            found[name] = try_command(
                COMMANDS[name], Path(root) / name, arguments.kills, arguments.seed, arguments.disks
            )
    told = {
        "about": __doc__.splitlines()[0],
        "commands": found,
        "seconds": round(time.perf_counter() - begin, 1),
        "seed": arguments.seed,
        "cpu": f"{platform.machine()}, {os.cpu_count()} cores, 1 thread each",
        "system": platform.system(),
        "versions": versions(),
        "commit": commit(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
