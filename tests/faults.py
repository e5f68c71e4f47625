"""`make faults`: the fault matrix, row by row, as the tests find it today.

    python -m tests.faults [ROW …]

A row *holds* when all its tests pass, and its protection is *noticed* when they fail without it. Exits with 1 when a
row that has a test does not hold or its removal goes unnoticed; rows without a test are listed, not failed.
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

    def __init__(self, wanted: set[str]) -> None:
        self.wanted = wanted
        self.outcomes: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._rows: dict[str, tuple[tuple[str, ...], str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept: list[pytest.Item] = []
        for item in items:
            mark = item.get_closest_marker("fault")
            if mark is None or not isinstance(item, pytest.Function):
                continue
            rows = mark.kwargs["rows"]
            if not self.wanted or self.wanted & set(rows):
                self._rows[item.nodeid] = rows, str(item.callspec.params["protection"])
                kept.append(item)
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            rows, protection = self._rows[report.nodeid]
            for row in rows:
                self.outcomes[row][protection].add(report.outcome)


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
    collector = Collector(set(arguments))
    # Over the whole suite: a test may prove a row wherever it lives.
    options = ["-o", "addopts=--strict-markers --strict-config --import-mode=importlib -p no:cacheprovider"]
    code = pytest.main([*options, "-m", "fault and not soak", "-p", "no:terminal"], [collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(f"the tests could not be run: {pytest.ExitCode(code).name.lower()}", file=sys.stderr)
        return 2
    good = True
    for row in arguments or rows:
        words, fine = verdict(collector.outcomes[row])
        good &= fine
        print(f"{row:<4} {words:<32} {rows[row]}")
    tested = sum(1 for row in rows if collector.outcomes[row])
    if not arguments:
        print(f"\n{tested} of {len(rows)} rows have a test")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
