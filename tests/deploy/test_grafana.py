"""The Grafana dashboard on a real Prometheus that scrapes a real lab: each panel has data, and the labels it shows.

Grafana itself is not in Debian. What it would ask, Prometheus is asked here; only the drawing is not tested.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast.balancer.dataplane.api import TrackedFlows
from holdfast.balancer.traffic import TrafficMeter
from holdfast.cli.lab import command as lab_commands
from holdfast.lab.fleet import layout, seed
from holdfast.lab.scenes.stage import Lab
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.real.processes import reserved_ports, tool, wait_until
from tests.lab.harness import needs_etcd

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "holdfast.json"
WELL = {"Held by gates", "Worker restarts in 24 h"}
"""Panels without data while all is well."""
NO_REGION = {"region"}
"""Labels that Prometheus drops because the lab's region has no name."""
WITHIN_S = 180.0

pytestmark = [
    needs_etcd,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]


class Query(NamedTuple):
    panel: str
    expr: str
    labels: frozenset[str]
    """Labels that the legend names."""


def queries() -> list[Query]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [
        Query(panel["title"], target["expr"], frozenset(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])))
        for panel in panels
        for target in panel["targets"]
    ]


class Prometheus:
    """A Prometheus on loopback that scrapes every second."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, expr: str) -> list[dict[str, str]]:
        """Return the labels of each series that the expression has now."""
        url = f"http://{self._address}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20) as answer:
            found = json.load(answer)["data"]["result"]
        return [one["metric"] for one in found if one["value"][1] != "NaN"]


@contextmanager
def prometheus(folder: Path, jobs: Mapping[str, Sequence[str]]) -> Iterator[Prometheus]:
    with reserved_ports(1) as (port,):
        yield from _prometheus(folder, jobs, f"127.0.0.1:{port}")


def _prometheus(folder: Path, jobs: Mapping[str, Sequence[str]], address: str) -> Iterator[Prometheus]:
    scraped = [{"job_name": job, "static_configs": [{"targets": list(targets)}]} for job, targets in jobs.items()]
    settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": scraped}
    (folder / "prometheus.yaml").write_text(json.dumps(settings), encoding="utf-8")
    flags = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
    command = [tool("setpriv"), "--pdeathsig", "KILL", "--", tool("prometheus"), *flags]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        one = Prometheus(address)
        wait_until(lambda: _answers(one), "Prometheus to answer", within=60)
        yield one
    finally:
        process.terminate()
        process.wait(30)


def _answers(one: Prometheus) -> bool:
    try:
        return bool(one.ask("vector(1)"))
    except OSError:
        return False


def targets(lab: Path) -> dict[str, list[str]]:
    """Return the addresses of all daemons of a lab by job, as docs/http.md names the jobs."""
    found: dict[str, list[str]] = {}
    for file in sorted((lab / "run").glob("*/*.http")):
        found.setdefault(f"holdfast-{file.stem}", []).append(file.read_text(encoding="ascii").strip())
    return found


class Tracking(FakeDataplane):
    """A dataplane that counts connections, as nftables does and the lab's file does not."""

    def tracked(self) -> TrackedFlows:
        return TrackedFlows(10, 100)


@contextmanager
def tracking() -> Iterator[str]:
    """Serve the metrics of a balancer on such a dataplane; yield the address."""
    registry = CollectorRegistry()
    TrafficMeter(Tracking(), registry)
    page = generate_latest(registry)

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _without_data(one: Prometheus, asked: Sequence[Query]) -> list[str]:
    return [f"{query.panel}: {query.expr}" for query in asked if not one.ask(query.expr)]


def _wait_for_data(one: Prometheus, asked: Sequence[Query]) -> None:
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not _without_data(one, asked), "data on every panel", within=WITHIN_S)
    assert _without_data(one, asked) == []


def _break_something(lab: Path) -> None:
    """Kill a worker, and delete so many endpoints that the brake closes."""
    os.kill(Lab(lab).tree("r1-01", "agent")[1], signal.SIGKILL)
    endpoints = [one for one in seed.initial_objects(layout.hosts(lab / "state")) if one.kind is ENDPOINT]
    seed.change(lab / "state", [seed.deleted(one) for one in endpoints[:-1]], "a test of the brake")


def test_each_panel_has_data_of_a_real_fleet_and_the_labels_of_its_legend(tmp_path: Path) -> None:
    everything = queries()
    always = [query for query in everything if query.panel not in WELL]
    with lab_commands.started() as lab, tracking() as counting:
        wait_until(
            lambda: (
                {job: len(all_) for job, all_ in targets(lab).items()}
                == {"holdfast-agent": 2, "holdfast-balancer": 1, "holdfast-server": 2}
            ),
            "every daemon to serve its metrics",
            within=WITHIN_S,
        )
        jobs = targets(lab)
        jobs["holdfast-balancer"].append(counting)
        with prometheus(tmp_path, jobs) as one:
            _wait_for_data(one, always)
            _break_something(lab)
            _wait_for_data(one, everything)
            for query in everything:
                shown = set().union(*one.ask(query.expr))
                assert query.labels - NO_REGION <= shown, f"{query.panel}: the legend names a label that is not there"
