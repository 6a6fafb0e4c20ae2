"""`mlrsnet doctor`."""

import argparse
import json

from mlrsnet.cli import diagnosis
from mlrsnet.cli.parser import Parser


def add(doctor: Parser) -> None:
    """Add its options."""
    doctor.add_argument("--json", action="store_true", help="print JSON, for other programs")
    doctor.set_defaults(run=_doctor)


def _doctor(words: argparse.Namespace) -> None:
    facts, checks = diagnosis.facts(), []
    if not words.json:
        for part, lines in facts.items():
            print(part)
            for name, value in lines.items():
                print(f"  {name:14} {value}")
        print("self-test")
    for check in diagnosis.self_test():
        checks.append(check)
        if not words.json:
            print(_line(check))
    if words.json:
        print(json.dumps({**facts, "self-test": [vars(check) for check in checks]}, indent=1))
    failed = sum(bool(check.problem) for check in checks)
    if failed:
        raise RuntimeError(f"{failed} of {len(checks)} checks failed: report this with all of the above")


def _line(check: diagnosis.Check) -> str:
    line = f"  {'FAILED' if check.problem else 'ok':14} {check.name} ({check.seconds:.1f} s)"
    return f"{line}: {check.problem}" if check.problem else line
