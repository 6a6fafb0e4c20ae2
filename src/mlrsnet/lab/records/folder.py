"""A run as a folder of files."""

import json
from pathlib import Path

from mlrsnet._files.storage import write_atomically
from mlrsnet.lab.records.record import Record, check
from mlrsnet.lab.records.text import dumps, lines

RECORD, EPOCHS, TRACE, CHECKPOINT, SCHEDULE = (
    "record.json",
    "epochs.jsonl",
    "trace.json",
    "checkpoint.pt",
    "schedule.safetensors",
)


def write(record: Record) -> None:
    """Bring the folder up to date, each file atomically; does nothing for a run without a folder."""
    if record.folder is not None:
        write_atomically(record.folder / EPOCHS, epochs_text(record).encode())
        write_atomically(record.folder / TRACE, trace_text(record).encode())
        write_atomically(record.folder / RECORD, record_text(record).encode())


def record_text(record: Record) -> str:
    """The content of record.json."""
    return dumps(record.data, indent=1)


def epochs_text(record: Record) -> str:
    """The content of epochs.jsonl."""
    return "".join(dumps(line) + "\n" for line in record.epochs)


def trace_text(record: Record) -> str:
    """The content of trace.json."""
    return dumps(record.trace)


def read(folder: Path) -> Record:
    """The run whose files lie in a folder; one ValueError if there is none, or it is damaged."""
    try:
        data = json.loads((folder / RECORD).read_text())
        epochs = lines((folder / EPOCHS).read_text()) if (folder / EPOCHS).is_file() else []
        trace = json.loads((folder / TRACE).read_text()) if (folder / TRACE).is_file() else {}
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no run: pass a folder with a {RECORD}, or one above such folders") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{folder / RECORD} cannot be read ({error}): restore it, or delete the folder") from None
    return Record(check(data, str(folder / RECORD)), epochs, trace, folder)
