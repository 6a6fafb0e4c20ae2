"""Known vulnerabilities of what the tests are run with, as the locks in `requirements/` pin it.

    make audit

pip-audit asks PyPI about each pinned version. It says "no known vulnerabilities" also where it could ask about none, so what it
skipped is looked up again: PyPI's page of a package lists what is known about its newest version. A package that is pinned to an
older version and that pip-audit skipped counts as not checked. The result goes to results/audit/audit.json.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from mlrsnet_lab.records import commit

ROOT = Path(__file__).parents[1]
LOCKS, RECORD = sorted((ROOT / "requirements").glob("*.lock")), ROOT / "results" / "audit" / "audit.json"
PAGE = "https://pypi.org/pypi/{}/json"

Pin = tuple[str, str]
"""A name and a version."""


def pins(text: str) -> list[Pin]:
    """What a lock file pins.

    >>> pins("a-b==1.0 ; x == 'y' \\\\\\n    --hash=sha256:0\\n    # via c")
    [('a-b', '1.0')]
    """
    lines = [line.split()[0].split("==") for line in text.splitlines() if "==" in line and line[0].isalnum()]
    return [(name, pinned) for name, pinned in lines]


def ask_pip_audit(lock: Path) -> dict[Pin, list[str]]:
    """Identifiers of vulnerabilities of each pinned package that pip-audit could ask about."""
    words = ["--requirement", str(lock), "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run([sys.executable, "-m", "pip_audit", *words], capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"pip-audit failed: {done.stderr[-500:]}")
    asked = [one for one in json.loads(done.stdout)["dependencies"] if "skip_reason" not in one]
    return {(one["name"], one["version"]): [bug["id"] for bug in one["vulns"]] for one in asked}


def ask_page(pin: Pin) -> list[str] | None:
    """Identifiers for a package's newest version; None if another one is pinned, or the page cannot be read."""
    name, pinned = pin
    try:
        with urlopen(PAGE.format(name), timeout=60) as answer:
            page = json.load(answer)
    except OSError:
        return None
    known = [bug["id"] for bug in page["vulnerabilities"] if not bug.get("withdrawn")]
    return known if page["info"]["version"] == pinned else None


def main() -> int:
    """Ask, write the record, and tell the result in a few lines."""
    pinned = [pin for lock in LOCKS for pin in pins(lock.read_text())]
    by_tool = {pin: bugs for lock in LOCKS for pin, bugs in ask_pip_audit(lock).items()}
    left = [pin for pin in pinned if pin not in by_tool]
    with ThreadPoolExecutor(4) as several:
        by_page = dict(zip(left, several.map(ask_page, left), strict=True))
    unknown = sorted("==".join(pin) for pin, bugs in by_page.items() if bugs is None)
    bugs = {"==".join(pin): found for pin, found in sorted((by_tool | by_page).items()) if found}
    record: dict[str, Any] = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "pip_audit": version("pip-audit"),
        "packages": len(pinned),
        "checked_by_pip_audit": len(pinned) - len(left),
        "checked_by_page_of_newest_version": len(left) - len(unknown),
        "not_checked": unknown,
        "vulnerabilities": bugs,
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    checked = len(pinned) - len(unknown)
    print(f"{checked} of {len(pinned)} packages checked: {sum(map(len, bugs.values()))} known vulnerabilities")
    for name, found in bugs.items():
        print(f"  {name}: {', '.join(found)}")
    if unknown:
        print(f"not checked: {', '.join(unknown)}")
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
