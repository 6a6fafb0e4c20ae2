"""What faults, damaged files and fuzzing did, and what is known about the packages: the programs are in `tools/`."""

from experiments import markdown, results

FAULTS = {
    "SIGKILL": "kill -9",
    "SIGTERM": "SIGTERM",
    "SIGINT": "Ctrl-C",
    "full disk": "full disk",
    "read-only disk": "read-only disk",
}
"""What `tools/faults.py` does to a command, and how the document calls it."""


def faults() -> list[str]:
    """How often each fault struck each command, and how many bits differed after all."""
    heads = [
        "",
        FAULTS["SIGKILL"],
        "of these inside a write",
        *list(FAULTS.values())[1:],
        "bits that differ at the end",
    ]
    rows = []
    for name, found in results.data("faults/faults.json")["commands"].items():
        inside = sum(count for place, count in found["SIGKILL"]["landed"].items() if "between" not in place)
        counts = [str(found[fault]["strikes"]) if fault in found else "" for fault in FAULTS]
        bits = sum(found[fault]["differing_bits"] for fault in FAULTS if fault in found)
        rows.append([f"`{name}`", counts[0], str(inside), *counts[1:], str(bits)])
    return markdown.table(heads, rows)


def damage() -> list[str]:
    """How often something else was read without a word."""
    record = results.data("faults/damage.json")
    rows = [
        [name, str(record["times"]), str(line["lab"]["other"]), str(line["alone"]["other"])]
        for name, line in record["files"].items()
    ]
    return markdown.table(["", "damaged", "read as something else by the lab", "by the format's own reader"], rows)


def fuzz() -> list[str]:
    """Inputs, crashes and hangs."""
    record = results.data("fuzz/fuzz.json")
    total, tools = record["total"], record["versions"]
    return [
        f"{total['inputs']:,} inputs in {len(record['readers'])} readers, {total['seconds'] / 60:.0f} minutes "
        f"({total['cpu_seconds'] / 60:.0f} of a CPU's time), atheris {tools['atheris']}, torch {tools['torch']}: "
        f"{total['crashes']} crashes, {total['hangs']} hangs ([record](../results/fuzz/fuzz.json))."
    ]


def audit() -> list[str]:
    """Known vulnerabilities."""
    record = results.data("audit/audit.json")
    left, bugs = len(record["not_checked"]), sum(map(len, record["vulnerabilities"].values()))
    checked = f"On {record['date']}, {record['packages'] - left} of {record['packages']} packages could be checked"
    rest = f" The other {left} are pinned to older versions, which PyPI did not answer for." if left else ""
    return [f"{checked}: {bugs or 'no'} known vulnerabilities ([record](../results/audit/audit.json)).{rest}"]
