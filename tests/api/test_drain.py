"""Drains over the API of a real server: begun and ended with an admin token, and shown in the grid with their flows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.api.tokens import FILE, TokenFile, TokenRole
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from tests.api.daemon import ApiDaemon, put

REGION = Region("drains")


class Drained:
    def __init__(self, daemon: ApiDaemon, etcd: EtcdCluster, admin: str, read: str) -> None:
        self._daemon, self._etcd = daemon, etcd
        self.admin, self.read = admin, read

    def put(self, key: bytes, value: bytes) -> None:
        put(self._etcd, key, value)

    def get(self, path: str) -> Any:
        return json.loads(self._daemon.get(f"/api/v1/{path}")[2])

    def ask(self, action: str, name: str, *, kind: str = "host", token: str = "", reason: str = "") -> tuple[int, str]:
        connection = self._daemon.connection()
        try:
            body = json.dumps({"action": action, "kind": kind, "name": name, "reason": reason})
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token or self.admin}"}
            connection.request("POST", "/api/v1/intents", body, headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
            if answer.status == 429:  # five changes per second, over all tests
                time.sleep(int(answer.headers["Retry-After"]))
                return self.ask(action, name, kind=kind, token=token, reason=reason)
            return answer.status, found.get("answer") or found["detail"]
        finally:
            connection.close()

    def cell(self) -> tuple[str, dict[str, str]]:
        found = self.get("hosts")
        return dict(zip(found["names"], found["states"], strict=True)).get("r1", ""), found["reasons"].get("r1", {})


@pytest.fixture(scope="module")
def fleet(one_etcd: EtcdCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drained]:
    folder = tmp_path_factory.mktemp("drains")
    (folder / "state").mkdir(mode=0o700)
    tokens = TokenFile(folder / "state" / FILE)
    secrets = tokens.create("alice", TokenRole.ADMIN), tokens.create("bob", TokenRole.READ)
    settings = {"store.endpoints": one_etcd.endpoints[0], "store.region": REGION.name}
    with ApiDaemon(folder, settings=settings) as daemon:
        one = Drained(daemon, one_etcd, *secrets)
        one.put(HOST.key(REGION, "r1"), HOST.encode(Host.of("r1", HostSpec(bgp=Bgp("10.9.0.1/24")))))
        one.put(AGENT_STATUS.key(REGION, "r1"), AGENT_STATUS.encode(AgentStatus.of(datetime.now(UTC), 1.0)))
        wait_until(lambda: one.cell()[0] == "h", "the host in the grid", within=60)
        yield one


def test_an_admin_drains_a_host_and_the_grid_says_who_and_how_many_flows_are_left(fleet: Drained) -> None:
    assert fleet.ask("drain", "r1", reason="new disk", token=fleet.read)[0] == 403
    status, answer = fleet.ask("drain", "r1", reason="new disk")
    assert status == 200, answer
    assert "end it with: holdfast undrain host r1" in answer
    wait_until(lambda: fleet.cell()[0] == "d", "the host as drained")
    assert "drained by token alice: “new disk”" in fleet.cell()[1]["why"]
    report = BalancerReport(version="1", table="t", configuration="c", health="h", intents="i", draining={"r1": 7})
    fleet.put(BALANCER_REPORT.key(REGION, "lb-1"), BALANCER_REPORT.encode(report))
    fleet.put(BALANCER_REPORT.key(REGION, "lb-2"), b"rubbish")
    wait_until(lambda: [one["flows"] for one in fleet.get("fleet")["drains"]] == [{"lb-1": 7}], "the flows")
    wait_until(lambda: fleet.get("fleet")["drains"][0]["waiting"] == ["lb-2"], "the one that has not counted")
    assert fleet.ask("undrain", "r1")[0] == 200
    wait_until(lambda: fleet.cell()[0] == "h" and fleet.get("fleet")["drains"] == [], "the end of the drain")


def test_what_cannot_be_drained_is_refused_with_the_reason(fleet: Drained) -> None:
    assert fleet.ask("drain", "web", kind="frontend", reason="x") == (
        409,
        "a frontend cannot be drained: only a host can.",
    )
    status, answer = fleet.ask("drain", "r2", reason="x")
    assert (status, "there is no host r2" in answer) == (409, True)
    assert fleet.ask("undrain", "r1") == (409, "host r1 is not drained")
