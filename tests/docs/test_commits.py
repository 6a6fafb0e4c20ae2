"""Every record says at which commit it was made, and that commit can be checked out."""

import json
import subprocess
from collections import Counter

import pytest

from experiments.results import RESULTS, ROOT

PLANS = ("recipe.json",)
"""Files that measure nothing; tables of trainings (.gz) cannot name a commit."""

SEVERAL = ("sweeps/fits.json", "walks/ends.json")
"""Files that hold several records."""

UNKNOWN = {
    "proof_short/runs.jsonl": 162,  # of 638: One relative size, and seeds 2 and 3 of three rivals
    "adam_on_text/cpu.json": 1,
    "audit/audit.json": 1,
    "authors/meta-training.json": 1,
    "executors/cpu.json": 1,
    "faults/damage.json": 1,
    "faults/faults.json": 1,
    "fuzz/fuzz.json": 1,
    "horizon/speed-h200.json": 1,
    "metatrain_overhead/cpu.json": 1,
    "metatrain_overhead/h200.json": 1,
    "probe/probe.json": 1,
    "step_overhead/cpu.json": 1,
}
"""How many records of a file do not know their commit. Each says why, and since which commit it is kept. No new ones."""

REASONS = {
    "the program that measured did not note its commit",
    "made at a commit that never came into this history",
    "made outside of a repository, by a script with the same spec",
    "not made by this library",
}


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def inside(path):
    """The records of a file."""
    if path.suffix == ".txt":
        return [{"commit": path.read_text().splitlines()[1]}]
    if path.suffix == ".jsonl":
        return [json.loads(line)["record"] for line in path.read_text().splitlines()]
    found = json.loads(path.read_text())
    return list(found.values()) if path.relative_to(RESULTS).as_posix() in SEVERAL else [found]


def recorded():
    """Every record with its file's name."""
    for path in sorted(RESULTS.rglob("*")):
        if path.suffix in (".json", ".jsonl", ".txt") and path.name not in PLANS:
            yield from ((path.relative_to(RESULTS).as_posix(), one) for one in inside(path))


def commits(record):
    """What a record names; one of several sessions names each session's, and one that names nothing has None."""
    return [one.get("commit") for one in ([record] if "commit" in record else record.get("sessions", [{}]))]


@pytest.fixture(scope="module")
def history():
    """All commits that led here; skips where the clone has not got them."""
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("this clone has no history: git fetch --unshallow")
    return git("rev-list", "HEAD").stdout.split()


def test_only_records_that_say_why_do_not_know_their_commit():
    unknown = [(name, one) for name, one in recorded() if "unknown" in commits(one)]
    assert {one["about_commit"] for _, one in unknown} == REASONS
    assert Counter(name for name, _ in unknown) == UNKNOWN


def test_the_commit_of_every_record_can_be_checked_out(history):
    named = {(name, commit) for name, one in recorded() for commit in commits(one) if commit != "unknown"}
    kept = {(name, one["kept_since"]) for name, one in recorded() if "kept_since" in one}
    assert len(named) > 50
    lost = [one for one in named | kept if not _is_among(history, one[1])]
    assert lost == []


def _is_among(history, commit):
    """Also where files were changed beyond it."""
    short = str(commit).removesuffix("-changed")
    return len(short) >= 7 and any(one.startswith(short) for one in history)
