"""Which small changes of the law, the sensors, the ranges and the lookahead does no test of the library notice?

    python -m pip install '.[mutation]'
    python -m tools.mutation            # writes results/mutation/mutation.json; half an hour on one core
    python -m tools.mutation again      # those that survived, after tests were added

Torch is imported and the tests are collected once. Each mutant is then tried in a fork, by the tests that run its lines
(`coverage`), until one fails or `SECONDS` of tests have passed: first those that found a mutant before, then the quickest. Doctests
are not among them, nor the LRs that an earlier core wrote down (`LEFT_OUT`): any change fails those, whether it matters or not.
Where weights are spread over processes, coverage does not follow; a mutant of a function that speaks of them is tried by
`PROCESSES` too, which import a changed copy.

`equivalent.json` lists by hand, with the reason, what no test can notice. mutmut was not taken since it leaves out decorated
functions and constants of modules, nor cosmic-ray since it starts Python for each mutant.
"""

import hashlib
import inspect
import itertools
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from mlrsnet.card import versions
from mlrsnet_lab.records.revision import commit
from tools.mutants import SOURCE, Mutant, mutants, path_of

MODULES = ("default", "sensors", "ranges", "algorithm2", "plan", "_numbers", "meta.provisional")
SAMPLE, SECONDS = 300, 30.0
LEFT_OUT = ("integrations", "docs", "fuzz", "walks", "test_lockstep.py", "test_package.py")
PROCESSES = ("tests/core/test_shards.py", "tests/core/test_ranks.py", "tests/test_metatrain_distributed.py")
OPTIONS = (
    "-s", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", "--override-ini=addopts=--strict-markers",
    "-m", "not gpu and not nightly and not browser", *(f"--ignore-glob=*/{name}" for name in LEFT_OUT),
)  # fmt: skip
ROOT = Path(__file__).parents[1]
RECORD, EQUIVALENT = ROOT / "results" / "mutation" / "mutation.json", Path(__file__).with_name("equivalent.json")
COVERED = ROOT / ".mutation.json"
"""What is known of the tests, as long as the library does not change."""


class Trial:
    """A plugin of pytest: instead of running what was collected, tries mutants on it."""

    def __init__(self, chosen: list[Mutant], known: dict[str, str], again: bool = False) -> None:
        self.chosen, self.good, self.killers = chosen, set(known.values()), known if again else {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Called by pytest."""
        items = {item.nodeid: item for item in session.items}
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copytree(SOURCE, Path(folder) / "mlrsnet", ignore=shutil.ignore_patterns("__pycache__")))
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
            tests = json.loads(COVERED.read_text()) if COVERED.exists() else {}
            if tests.get("sources") != sources():
                tests = {"sources": sources(), "seconds": {}, "lines": {}}
            new = [item for name, item in items.items() if name not in tests["seconds"]]
            forked(lambda: COVERED.write_text(json.dumps(learned(new, tests))), 3600)
            tests = json.loads(COVERED.read_text())
            for mutant in self.chosen:
                if self.killers.get(mutant.key) not in items:
                    run = covering(mutant, tests)
                    self.killers[mutant.key] = self.killer(mutant, run, tests["seconds"], items, copy)
            spread = [name for name in items if name.startswith(PROCESSES)]
            for mutant in self.chosen:
                if not self.killers[mutant.key] and re.search("shard|rank", mutant.function):
                    self.killers[mutant.key] = self.killer(mutant, spread, tests["seconds"], items, copy, 10 * SECONDS)
        return True

    def killer(
        self, mutant: Mutant, tests: Iterable[str], seconds: dict[str, float], items: dict[str, Any], copy: Path,
        most: float = SECONDS,
    ) -> str:  # fmt: skip
        """The test that fails first; empty where none does."""
        quickest = sorted(tests, key=lambda test: (test not in self.good, seconds[test]))
        passed = itertools.accumulate(seconds[test] for test in quickest)
        run = [items[test] for test, so_far in zip(quickest, passed, strict=True) if so_far < most and test in items]
        changed, answer = copy / path_of(mutant.module).relative_to(SOURCE), copy.parent / "answer"
        changed.write_text(mutant.source)
        answer.write_text("")
        began = time.time()
        ended = forked(lambda: answer.write_text(first_failure(mutant, run)), 60 + 20 * most)
        shutil.copy2(path_of(mutant.module), changed)
        found = answer.read_text() or ("" if ended else "too slow")
        self.good.add(found)
        print(f"{time.time() - began:5.1f} s  {len(run):4} tests  {mutant.key}  {found or 'SURVIVES'}", flush=True)
        return found


def sources() -> str:
    """A digest of the library: where it has changed, lines are no longer what they were."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCE.rglob("*.py")))).hexdigest()


def learned(items: list[Any], known: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each test, and which tests run which lines: what was known before, and of these tests."""
    import coverage  # of the extra `mutation`

    watch, seconds = coverage.Coverage(data_file=None, include=[str(SOURCE / "*")]), known["seconds"]
    watch.start()
    for place, item in enumerate(items):
        began = time.time()
        watch.switch_context(item.nodeid)
        works = not failure(items, place)
        seconds[item.nodeid] = round(time.time() - began, 4) if works else math.inf  # says nothing of a mutant
    watch.stop()
    places, data = {test: place for place, test in enumerate(seconds)}, watch.get_data()
    for file in data.measured_files():
        lines = known["lines"].setdefault(str(Path(file).relative_to(SOURCE)), {})
        for line, tests in data.contexts_by_lineno(file).items():
            lines.setdefault(str(line), []).extend(places[test] for test in tests if test)
    return known


def covering(mutant: Mutant, tests: Any) -> set[str]:
    """The tests that run its lines; or lines that speak of what its lines define, where the import runs them."""
    own = str(path_of(mutant.module).relative_to(SOURCE))
    places = [(own, line) for line in mutant.lines]
    if mutant.names:
        word = re.compile(rf"\b({'|'.join(mutant.names)})\b")
        for file in tests["lines"]:
            text = enumerate((SOURCE / file).read_text().splitlines(), 1)
            places += [(file, number) for number, line in text if word.search(line)]
    names = list(tests["seconds"])
    return {names[test] for file, line in places for test in tests["lines"].get(file, {}).get(str(line), ())}


def first_failure(mutant: Mutant, items: list[Any]) -> str:
    """In a process of its own, which is changed for it."""
    try:
        original = sys.modules[f"mlrsnet.{mutant.module}"]
        changed = ModuleType(original.__name__)
        sys.modules[original.__name__] = changed  # where dataclasses look
        exec(compile(mutant.source, str(original.__file__), "exec"), vars(changed))
        sys.modules[original.__name__] = original
        graft(original, changed)
    except Exception as error:
        return f"import: {type(error).__name__}"
    return next((failed for place in range(len(items)) if (failed := failure(items, place))), "")


def failure(items: list[Any], place: int) -> str:
    """Run one of some tests; its name if it fails."""
    item, failed = items[place], list[bool]()
    following = items[place + 1] if place + 1 < len(items) else None
    item.config.pluginmanager.register(Watcher(failed), "watcher")
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    item.config.pluginmanager.unregister(name="watcher")
    return item.nodeid if failed else ""


class Watcher:
    """Hears what tests report."""

    def __init__(self, failed: list[bool]) -> None:
        self.failed = failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest."""
        self.failed += [True] * report.failed


def graft(old: Any, new: Any) -> None:
    """Give a module that others have imported, or a class of it, the code, the defaults and the constants of a changed one."""
    for name, value in list(vars(new).items()):
        before = vars(old).get(name)
        if isinstance(value, type) and value.__module__ == new.__name__:
            graft(before, value)
        elif isinstance(function := _function(value), FunctionType):
            if isinstance(new, type) or function.__module__ == new.__name__:
                for part in ("__code__", "__defaults__", "__kwdefaults__"):
                    setattr(_function(before), part, getattr(function, part))
        elif value is not before and not name.startswith("__"):
            others = [] if isinstance(new, type) else list(sys.modules.values())
            for one in (old, *(one for one in others if getattr(one, "__dict__", {}).get(name) is before)):
                setattr(one, name, value)


def _function(value: Any) -> Any:
    """Without its decorators."""
    return inspect.unwrap(getattr(value, "__func__", None) or getattr(value, "fget", None) or value)


def forked(work: Any, seconds: float) -> bool:
    """Do something in a copy of this process; says whether it ended in time."""
    pid = os.fork()
    if not pid:
        os.setsid()
        try:
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            work()
        finally:
            os._exit(0)
    ends = time.time() + seconds
    while time.time() < ends:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def record(chosen: list[Mutant], killers: dict[str, str], reasons: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The score: killed, of those that a test on this machine could notice."""
    counted = [one for one in chosen if one.key in killers]

    def score(some: list[Mutant]) -> dict[str, Any]:
        killed = sum(bool(killers[one.key]) for one in some)
        return {"mutants": len(some), "killed": killed, "share": round(killed / max(1, len(some)), 3)}

    return {
        "commit": commit(),
        "versions": versions(),
        "seconds_of_tests_for_each": SECONDS,
        "drawn": len(chosen),
        "counted": score(counted),
        "constants": score([one for one in counted if one.kind == "Constant"]),
        "others": score([one for one in counted if one.kind != "Constant"]),
        "modules": {module: score([one for one in counted if one.module == module]) for module in MODULES},
        "survivors": sorted(key for key in killers if not killers[key]),
        **{kind: {one.key: some[one.key] for one in chosen if one.key in some} for kind, some in reasons.items()},
        "killed_by": {key: killers[key] for key in sorted(killers) if killers[key]},
    }


def main(*words: str) -> int:
    """Try them, and write the record."""
    chosen = sorted((one for module in MODULES for one in mutants(module)), key=lambda one: one.place)[:SAMPLE]
    reasons = json.loads(EQUIVALENT.read_text())
    counted = [one for one in chosen if not any(one.key in some for some in reasons.values())]
    known = json.loads(RECORD.read_text())["killed_by"] if RECORD.exists() else {}
    trial = Trial(counted, known, "again" in words)
    code = int(pytest.main([*OPTIONS, str(ROOT / "tests")], plugins=[trial]))
    killers = {one.key: trial.killers[one.key] for one in counted}
    RECORD.write_text(json.dumps(record(chosen, killers, reasons), indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
