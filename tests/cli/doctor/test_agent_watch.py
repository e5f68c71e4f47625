"""The watch of an agent in `holdfast doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.doctor import Severity
from holdfast.cli.doctor.agent_watch import about_agent, watch


@pytest.mark.parametrize(("rate", "severity"), [(0.0, Severity.GOOD), (10.0, Severity.GOOD), (10.1, Severity.WRONG)])
def test_more_than_ten_changes_of_other_kinds_per_second_do_not_fit_mesh_mode(rate: float, severity: Severity) -> None:
    (finding,) = watch({"skipped_per_second": rate})
    assert finding.severity is severity
    assert ("mesh mode does not fit this etcd" in finding.sentence) is (severity is Severity.WRONG)


def test_where_no_agent_runs_nothing_is_checked(tmp_path: Path) -> None:
    assert about_agent(tmp_path) is None
