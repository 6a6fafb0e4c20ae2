"""A run as a folder of files."""

from pathlib import Path

from mlrsnet.files.untrusted import reason
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.records import copies
from mlrsnet_lab.records.record import Record, check
from mlrsnet_lab.records.text import dumps, lines, loads

RECORD, EPOCHS, TRACE, CHECKPOINT, SCHEDULE = (
    "record.json",
    "epochs.jsonl",
    "trace.json",
    "checkpoint.pt",
    "schedule.safetensors",
)


FILES = (EPOCHS, TRACE, RECORD)
"""In the order in which they are written: record.json makes the folder a run."""


def write(record: Record) -> None:
    """Bring the folder up to date, each file atomically; does nothing for a run without a folder."""
    if record.folder is not None:
        texts = (epochs_text(record), trace_text(record), record_text(record))
        files = {name: text.encode() for name, text in zip(FILES, texts, strict=True)}
        copies.write(record.folder, files)
        for name, content in files.items():
            write_atomically(
                record.folder / name, content, durable=name == RECORD
            )  # the others can be read from the copy


def restore(folder: Path) -> None:
    """Make damaged files of a run that has ended good again, from their copy."""
    copies.restore(folder, FILES)


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
        files = copies.read_files(folder, FILES)
        if RECORD not in files:
            raise FileNotFoundError
        files = copies.whole(folder, files)
        data = loads(files[RECORD])
        epochs = lines(files[EPOCHS].decode()) if EPOCHS in files else []
        trace = loads(files[TRACE]) if TRACE in files else {}
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no run: pass a folder with a {RECORD}, or one above such folders") from None
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{folder / RECORD} cannot be read ({reason(error)}): restore it, or delete the folder"
        ) from None
    return Record(check(data, str(folder / RECORD), epochs, trace), epochs, trace, folder)
