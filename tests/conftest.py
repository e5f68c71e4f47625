"""Which tests stay together when several run at a time; what was not run here, and why, summed up at the end."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["holdfast.testing.fault", "holdfast.testing.fixtures"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file is one piece of work, and all scenes of the lab are: one lab serves them, and starting it is the most."""
    for item in items:
        in_the_lab = "lab" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("lab" if in_the_lab else str(item.path)))


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
