"""The alert rules: promtool runs their tests, each has a runbook, each speaks of metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.agent.metrics import AgentMetrics
from holdfast.agent.report.worker import ReporterMetrics
from holdfast.balancer.announce.worker import AnnounceMetrics
from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane
from holdfast.balancer.metrics import BalancerMetrics
from holdfast.balancer.probing.worker import ProberMetrics
from holdfast.balancer.traffic import TrafficMeter
from holdfast.config.sections.vpp import VppSettings
from holdfast.model.base.region import Region
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.commands import gather, of_report
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.compaction.compactor import CompactionMetrics
from holdfast.server.election.metrics import ElectionMetrics
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.migration_notices import MigrationMetrics
from holdfast.server.syncer.metrics import SyncerMetrics

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "alerts"


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((ALERTS / "holdfast.rules.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
def test_promtool_finds_every_alert_fire_and_stay_silent_as_it_should() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", "holdfast.rules.test.yaml"],
        cwd=ALERTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    tested = (ALERTS / "holdfast.rules.test.yaml").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules() if f"alertname: {rule['alert']}" not in tested] == []


def test_every_alert_has_a_runbook_page_that_says_what_to_do() -> None:
    for rule in rules():
        page = ROOT / rule["annotations"]["runbook"]
        assert page.is_file(), f"{rule['alert']} has no page {page}"
        assert "## What to do" in page.read_text(encoding="utf-8")


def test_every_alert_uses_metrics_that_exist() -> None:
    metrics = WorkerMetrics()
    ElectionMetrics(metrics.registry, SystemClock().now, Region())
    ProberMetrics(metrics.registry)
    SyncerMetrics(metrics.registry)
    status = WorkerMetrics()
    StatusMetrics(status.registry)
    CompactionMetrics(metrics.registry)
    MigrationMetrics(metrics.registry)
    AgentMetrics(metrics.registry)
    ReporterMetrics(metrics.registry)
    BalancerMetrics(metrics.registry)
    AnnounceMetrics(metrics.registry)
    TrafficMeter(VppDataplane(VppSettings(), Path("/nowhere")), metrics.registry)
    metrics.held({("brake", "too_many"): 1})
    text = gather({"elector": metrics.text(), "agent-status": status.text()}) + of_report([])
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    for rule in rules():
        named = set(re.findall(r"holdfast_\w+", rule["expr"]))
        assert named <= known | {f"{name}_total" for name in known}, f"{rule['alert']} asks for {named - known}"
