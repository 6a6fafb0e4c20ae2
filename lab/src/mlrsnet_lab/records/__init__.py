"""What a run leaves: plain files in a folder of its own, or one line of a pack that holds many runs.

A folder, which can be read while the run goes on and after it was killed:

    record.json         spec, labels, versions, device, git commit, status, result, timing; where it stopped and resumed;
                        digests of the user's files that it read
    epochs.jsonl        one line per epoch: losses, metrics, LR, seconds
    trace.json          loss and LR of about a thousand steps
    record.copy.json    a copy of these three with digests, for when one of them is damaged
    checkpoint.pt       to resume from, with checkpoint.previous.pt for when it is damaged; removed when the run is finished
    schedule.safetensors  what a meta-training learned; schedule.copy.safetensors is the same

A pack, which `mlrsnet runs pack` makes from runs that have ended:

    runs.jsonl          one line per run: its folder relative to the pack, and the three text files above

Two equal runs differ in dates, seconds and interruptions; these stand under `timing`, `sessions` and `seconds` only.
"""

from mlrsnet_lab.records.copies import COPY
from mlrsnet_lab.records.folder import CHECKPOINT, EPOCHS, RECORD, SCHEDULE, TRACE, restore, write
from mlrsnet_lab.records.packs import PACK, pack, unpack
from mlrsnet_lab.records.reading import file_of, find, has_ended, holds, read, runs
from mlrsnet_lab.records.record import (
    DIVERGED,
    ENDED,
    FAILED,
    FINISHED,
    FORMAT,
    INTERRUPTED,
    RUNNING,
    Record,
)
from mlrsnet_lab.records.revision import commit
from mlrsnet_lab.records.text import dumps, loads

RECIPE, STUDY = "recipe.json", "study.json"
"""What `mlrsnet reproduce` leaves above its runs: what it plans to run, or what it computed."""

CHOSEN = "chosen by validation"
"""The last words of a column whose runs are trials of a setting, with the first seed only."""

__all__ = [
    "CHECKPOINT",
    "CHOSEN",
    "COPY",
    "DIVERGED",
    "ENDED",
    "EPOCHS",
    "FAILED",
    "FINISHED",
    "FORMAT",
    "INTERRUPTED",
    "PACK",
    "RECIPE",
    "RECORD",
    "RUNNING",
    "SCHEDULE",
    "STUDY",
    "TRACE",
    "Record",
    "commit",
    "dumps",
    "file_of",
    "find",
    "has_ended",
    "holds",
    "loads",
    "pack",
    "read",
    "restore",
    "runs",
    "unpack",
    "write",
]
