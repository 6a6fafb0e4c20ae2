"""What loggers have on disk, read back: name of a metric -> {step: value}."""

import json
from collections import defaultdict


def from_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    files.Reload()
    return {tag: {event.step: event.value for event in files.Scalars(tag)} for tag in files.Tags()["scalars"]}


def from_mlflow(uri):
    """Of the only run in the store."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    (run,) = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {name: {metric.step: metric.value for metric in metrics} for name, metrics in history.items()}


def from_wandb(folder):
    """Of the only offline run in the folder `wandb`."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("offline-run-*/run-*.wandb")
    found = defaultdict(dict)
    for message in _messages(path.read_bytes()):
        record = Record.FromString(message)
        if record.WhichOneof("record_type") == "history":
            row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                found[name][row["_step"]] = value
    return found


def _messages(data, block=32768, header=7):
    """The records of a log in LevelDB's format, which wandb writes: blocks of chunks, each with checksum, length and kind."""
    full, first, last = 1, 2, 4
    place, message = header, b""  # ":W&B", a magic number and a version
    while place + header <= len(data):
        rest = block - place % block
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        if rest < header or not kind:  # nothing but padding follows in this block
            place += rest
            continue
        chunk = data[place + header : place + header + size]
        message = chunk if kind in (full, first) else message + chunk
        if kind in (full, last):
            yield message
        place += header + size
