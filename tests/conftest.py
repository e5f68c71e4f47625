"""Which tests stay together when several run at a time; what was not run here, and why, summed up at the end."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# How long an example takes says something about the machine, not about what is tested. CI tries the same examples each
# time, so that what it says is about the change; everybody else tries others every day.
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("any machine")

pytest_plugins = ["holdfast.testing.fault", "holdfast.testing.fixtures"]


TOGETHER = ("tests/lab/", "tests/chaos/")
"""Folders whose tests share real processes: to start a lab or a fleet takes longer than most of them."""


class ByRoom(LoadFileScheduling):  # type: ignore[misc]
    """When several run at a time: a file is one piece of work, and so is each of those folders."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((room for room in TOGETHER if file.startswith(room)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByRoom:
    return ByRoom(config, log)


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
