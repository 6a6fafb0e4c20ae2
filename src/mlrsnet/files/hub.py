"""Schedules on the Hugging Face Hub. A repository holds `schedule.safetensors`, and the card as README.md.

An address is `hf://owner/name`, or `hf://owner/name@revision` with a branch, a tag or a commit.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mlrsnet.card import Card, facts, one_line, result_lines
from mlrsnet.files.names import PREFIX
from mlrsnet.files.storage import LARGEST_FILE, ScheduleError
from mlrsnet.files.untrusted import one_line as shortened

FILE = "schedule.safetensors"
REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
TAGS = ("learning-rate-schedule", "learned-lr", "mlr-snet")

CARD = """\
# {name}

{about}

## Use

`pip install 'mlrsnet[hub]'`, then in a PyTorch training:

```python
lr = mlrsnet.LearnedLR(optimizer, "{address}", {arguments})
for batch in batches:
    loss = ...
    loss.backward()
    lr.step(loss)  # after backward, before the optimizer's step
    optimizer.step()
```

## How it was made

{made}

## Results

{results}

## Limits

{limits}
"""


def fetch(address: str) -> Path:
    """The local copy of the file at an address. It is downloaded only if the cache does not have it."""
    repository, revision = _parts(address)
    hub = _huggingface_hub(f"schedule {address!r}")
    with _plain_errors(address):
        download = partial(hub.HfApi(library_name="mlrsnet").hf_hub_download, repository, FILE, revision=revision)
        _check_size(address, download(dry_run=True).file_size)
        return Path(download())


def _check_size(address: str, size: int | None) -> None:
    """Before the download, which would fill the disk."""
    if size is not None and size > LARGEST_FILE:
        raise ScheduleError(
            f"{FILE} of {address} has {size:,} bytes, but a schedule has at most {LARGEST_FILE:,}: pass another repository"
        )


def push(
    repository: str,
    file: str | os.PathLike[str],
    model_card: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    message: str = "Add a schedule",
) -> str:
    """Commit a schedule's file and card, and return the commit's address. The repository is created if needed."""
    _check_name(repository)
    hub = _huggingface_hub("push_to_hub")
    with _plain_errors(f"{PREFIX}{repository}"):
        api = hub.HfApi(token=token, library_name="mlrsnet")
        api.create_repo(repository, private=private, exist_ok=True)
        additions = {FILE: os.fspath(file), "README.md": model_card.encode()}
        operations = [hub.CommitOperationAdd(name, content) for name, content in additions.items()]
        commit = api.create_commit(repository, operations, commit_message=message)
    return f"{PREFIX}{repository}@{commit.oid}"


def model_card(
    card: Card, net: dict[str, Any], *, phases: int, digest: str, repository: str, license: str | None = None
) -> str:
    """README.md for the Hub. It says only what the card and the networks' description say.

    Args:
        card: the schedule's card.
        net: the description of its networks.
        phases: how many networks.
        digest: the schedule's fingerprint.
        repository: `owner/name`.
        license: the Hub's identifier of a licence, such as `mit`; left out if None.
    """
    _check_name(repository)
    needs_classes = card.gamma.needs_classes or net["loss_scale"] == "log_classes"
    head = ["---", "library_name: mlrsnet", *_license(license), "tags:", *(f"- {tag}" for tag in TAGS), "---", ""]
    return "\n".join(head) + CARD.format(
        name=one_line(card.name),
        about="\n\n".join(
            filter(
                None, [card.description, "A schedule network reads the training loss and sets the LR of every step."]
            )
        ),
        address=PREFIX + repository,
        arguments="total_steps=..." + (", num_classes=..." if needs_classes else ""),
        made=_table({**facts(card, net, phases), "digest": digest}),
        results="\n".join(result_lines(card.results, "- ")) or "The card records no results.",
        limits="\n".join(f"- {limit}" for limit in _limits(card, net)) or "The card states none.",
    )


def _limits(card: Card, net: dict[str, Any]) -> Iterator[str]:
    """What the schedule has not seen in meta-training, as far as the card says."""
    if not card.learned_on:
        yield "It is untrained: its LRs mean nothing yet."
    if card.loss_range:
        scale = {"none": "", "log_classes": ", divided by log(classes)", "initial": ", divided by the first one"}
        low, high = card.loss_range
        yield f"It was learned from losses between {low:.3g} and {high:.3g}{scale[net['loss_scale']]}. Far outside, it warns."
    if card.optimizer:
        yield f"It was learned with {one_line(card.optimizer)}. For other optimizers, a fixed rule scales its range."
    if card.total_steps:
        yield f"It was learned on trainings of {card.total_steps} steps."


def _license(license: str | None) -> list[str]:
    if license is None:
        return []
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", license):
        raise ValueError(f"license must be one of the Hub's identifiers, such as mit or apache-2.0, got {license!r}")
    return [f"license: {license}"]


def _table(rows: dict[str, str]) -> str:
    cells = [f"| {name} | {one_line(value).replace('|', chr(92) + '|')} |" for name, value in rows.items() if value]
    return "\n".join(["| | |", "| --- | --- |", *cells])


def _parts(address: str) -> tuple[str, str | None]:
    """Repository and revision of an address."""
    repository, at, revision = address.removeprefix(PREFIX).partition("@")
    if at and not revision:
        raise ValueError(
            f"schedule must name a revision after '@', got {shortened(repr(address))}: leave out the '@' for the newest"
        )
    _check_name(repository)
    return repository, revision or None


def _check_name(repository: str) -> None:
    if not isinstance(repository, str) or not re.fullmatch(REPOSITORY, repository):
        raise ValueError(
            f"a repository on the Hub must be owner/name, got {shortened(repr(repository))}: push to 'owner/name', load "
            f"'{PREFIX}owner/name'"
        )


def _huggingface_hub(what: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            f"{what} needs huggingface_hub, which cannot be imported ({error}): pip install 'mlrsnet[hub]'"
        ) from None
    return huggingface_hub


@contextmanager
def _plain_errors(address: str) -> Iterator[None]:
    """Turn the Hub's errors into this package's: what was asked for, why it failed, what to do."""
    from huggingface_hub import errors

    # The base error of the Hub's HTTP library, which need not be an OSError.
    http_error: Any = errors.HfHubHTTPError.__bases__[0]
    login = "log in with `hf auth login`, or set HF_TOKEN"
    try:
        yield
    except errors.LocalEntryNotFoundError as error:  # a subclass of EntryNotFoundError, so it comes first
        raise _unreachable(address, error.__cause__ or error) from None
    except errors.EntryNotFoundError:
        raise ScheduleError(
            f"{address} has no file {FILE}: pass a repository made by Schedule.push_to_hub, or the path of a local file"
        ) from None
    except errors.RevisionNotFoundError:
        raise ScheduleError(
            f"{address} has no such revision: pass a branch, a tag or a commit of the repository, or none for the newest"
        ) from None
    except errors.GatedRepoError:
        raise PermissionError(f"{address} is gated: ask for access on its page, then {login}") from None
    except errors.RepositoryNotFoundError:
        raise ScheduleError(
            f"there is no repository {address} on the Hub, or it is private: check the name, or {login}"
        ) from None
    except (OSError, http_error) as error:
        if getattr(error, "errno", None) is not None:  # an error of the disk, not of the network
            raise
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise PermissionError(
                f"the Hub refused {address} ({one_line(error)}): {login}; pushing needs write access"
            ) from None
        raise _unreachable(address, error) from None


def _unreachable(address: str, error: BaseException) -> ConnectionError:
    return ConnectionError(
        f"{address}: the Hub could not be reached or gave an unexpected answer ({one_line(error)}): check the network and "
        "HF_HUB_OFFLINE and try again, or pass the path of a local file"
    )
