"""The alert rules: promtool runs their tests, each has a runbook, each speaks of metrics that exist."""

from __future__ import annotations

import json
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
from holdfast.model.base.time import NEVER
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.commands import gather, of_report
from holdfast.runtime.daemon.report import DaemonReport
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.compaction.compactor import CompactionMetrics
from holdfast.server.election.metrics import ElectionMetrics
from holdfast.server.status.metrics import StatusMetrics
from holdfast.server.status.migration_notices import MigrationMetrics
from holdfast.server.syncer.metrics import SyncerMetrics
from holdfast.store.contact import StoreContact

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


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
def test_promtool_has_nothing_against_the_rules() -> None:
    command = ["promtool", "check", "rules", "--lint-fatal", "holdfast.rules.yaml"]
    done = subprocess.run(command, cwd=ALERTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    tested = (ALERTS / "holdfast.rules.test.yaml").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules() if f"alertname: {rule['alert']}" not in tested] == []


RUNBOOK_FORM = ["## Impact", "## What to do", "It is over when", "## Safe to wait", "## When to call"]


def test_every_alert_has_a_runbook_page_in_the_same_form() -> None:
    for rule in rules():
        name = rule["annotations"]["runbook_url"].removeprefix("{{ $externalLabels.runbooks }}/").removesuffix(".html")
        page = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text(encoding="utf-8")
        places = [page.find(f"\n{part}") for part in RUNBOOK_FORM]
        assert -1 not in places, f"{name}.md lacks {RUNBOOK_FORM[places.index(-1)]}"
        assert places == sorted(places), f"the parts of {name}.md are in another order"


def test_every_runbook_belongs_to_an_alert() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")} - {"index"}
    assert pages == {rule["annotations"]["runbook_url"].rpartition("/")[2].removesuffix(".html") for rule in rules()}


def existing_metrics() -> set[str]:
    """Return the names of all series, as the daemons of a fleet expose them."""
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
    metrics.follow(StoreContact(NEVER))
    text = gather({"elector": metrics.text(), "agent-status": status.text()})
    text += of_report(DaemonReport("balancer", "1.2.3", 1, 0.1, []))
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    return known | {f"{name}_total" for name in known}


PROMISED = """
leader term lease_remaining_seconds leader_transitions_total store_last_contact_seconds watch_restarts_total backlog
lag_seconds resync_duration_seconds objects gate_closed worker_restarts_total agent_peers agent_journal_bytes
agent_pending_deletes backend_state probe_seconds probe_lateness_seconds maglev_buckets_moved_total
dataplane_writes_total event_loop_lag_seconds build_info
"""


def test_what_operators_are_promised_is_exposed() -> None:
    assert {f"holdfast_{name}" for name in PROMISED.split()} - existing_metrics() == set()


def test_every_alert_uses_metrics_that_exist() -> None:
    for rule in rules():
        named = set(re.findall(r"holdfast_\w+", rule["expr"]))
        assert named <= existing_metrics(), f"{rule['alert']} asks for {named - existing_metrics()}"


NO_METRICS = re.compile(r"holdfast_(config|guard\w*|mirror|objects|outbox|bad_keys)?")
"""Names of options, tables and hooks that pages mention."""


def test_every_metric_that_a_page_names_exists() -> None:
    known = existing_metrics()
    pages = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")}
    named = {(name, one) for name, text in pages.items() for one in re.findall(r"`(holdfast_\w*)", text)}
    assert {(name, one) for name, one in named if one not in known and not NO_METRICS.fullmatch(one)} == set()


def test_the_grafana_dashboard_shows_metrics_that_exist_on_panels_that_do_not_overlap() -> None:
    document = json.loads((ROOT / "deploy" / "grafana" / "holdfast.json").read_text(encoding="utf-8"))
    known, taken = existing_metrics(), set[tuple[int, int]]()
    for panel in document["panels"]:
        exprs = [target["expr"] for target in panel["targets"]]
        named = set(re.findall(r"holdfast_\w+", " ".join(exprs)))
        assert named <= known, f"{panel['title']} asks for {named - known}"
        assert named or "up{" in exprs[0]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
def test_prometheus_understands_every_query_of_the_grafana_dashboard(tmp_path: Path) -> None:
    document = json.loads((ROOT / "deploy" / "grafana" / "holdfast.json").read_text(encoding="utf-8"))
    exprs = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    records = [{"record": f"holdfast:panel_{number}", "expr": expr} for number, expr in enumerate(exprs)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
