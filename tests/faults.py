"""`make faults`: the fault matrix, row by row, as the tests find it today.

    python -m tests.faults [ROW …]

A row *holds* when all its tests pass with the protection replaced by one that calls it, and its protection is *noticed*
when they fail without it in the way the row describes (`holdfast.testing.fault`). Exits with 1 when a row that has a
test does not hold or its removal goes unnoticed, and says why; rows without a test are listed, not failed.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

MATRIX = Path(__file__).parent.parent / "docs" / "faults.md"


def matrix() -> dict[str, str]:
    """Row id → what goes wrong."""
    rows = re.findall(r"^\| ([CNB]\d+) \| (.*?) \|", MATRIX.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


class Collector:
    """Gathers the outcome of each row's tests, with the protection and without it."""

    def __init__(self) -> None:
        self.outcomes: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.failures: list[tuple[str, str]] = []
        """Test and last line of what went wrong."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        of = dict(report.user_properties)
        for row in of["rows"]:  # type: ignore[attr-defined]  # as `holdfast.testing.fault` has set them
            self.outcomes[row][str(of["run"])].add(report.outcome)
        if report.failed:
            self.failures.append((report.nodeid, report.longreprtext.splitlines()[-1]))


def verdict(outcomes: dict[str, set[str]]) -> tuple[str, bool]:
    """What to print for a row, and whether it is good."""
    if not outcomes:
        return "no test yet", True
    if "skipped" in outcomes["held"] | outcomes["removed"]:
        return "skipped here", True
    held = outcomes["held"] == {"passed"}
    noticed = outcomes["removed"] == {"passed"}
    words = ("held" if held else "DOES NOT HOLD") + ", " + ("noticed when removed" if noticed else "REMOVAL UNNOTICED")
    return words, held and noticed


def main(arguments: list[str]) -> int:
    rows = matrix()
    unknown = [row for row in arguments if row not in rows]
    if unknown:
        print(f"the matrix has no row {', '.join(unknown)}", file=sys.stderr)
        return 2
    collector = Collector()
    # Over the whole suite: a test may prove a row wherever it lives. Most wait for processes more than they compute.
    options = ["-o", "addopts=--strict-markers --strict-config --import-mode=importlib -p no:cacheprovider"]
    options += ["-n", "3", "--dist", "loadfile", "-p", "no:terminal", "-m", "fault and not soak"]
    code = pytest.main([*options, "--placebo", "--rows", ",".join(arguments) or "all"], [collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(f"the tests could not be run: {pytest.ExitCode(code).name.lower()}", file=sys.stderr)
        return 2
    good = True
    for row in arguments or rows:
        words, fine = verdict(collector.outcomes[row])
        good &= fine
        print(f"{row:<4} {words:<32} {rows[row]}")
    for test, why in collector.failures:
        print(f"\n{test}\n    {why}")
    untested = [row for row in rows if not collector.outcomes[row]] if not arguments else []
    if untested:
        print(f"\nno test yet: {', '.join(untested)}")
    tested = sum(1 for row in rows if collector.outcomes[row])
    if not arguments:
        print(f"\n{tested} of {len(rows)} rows have a test")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
