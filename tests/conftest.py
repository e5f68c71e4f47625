"""What was not run here, and why, summed up at the end of every run."""

from __future__ import annotations

from collections import Counter

import pytest

pytest_plugins = ["holdfast.testing.fault", "holdfast.testing.fixtures"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if not reasons:
        return
    terminalreporter.section(f"not run here: {reasons.total()}")
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        terminalreporter.line(f"{count:5} × {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """A skip's `longrepr` is (file, line, "Skipped: reason"); an xfail among them has only its text."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")
