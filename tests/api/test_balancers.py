"""Pools of balancers on other machines, in the API of any machine: as their reports in etcd have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.model.base.region import Region
from holdfast.model.fleet.balancer_report import (
    BALANCER_REPORT,
    BackendReport,
    BalancerReport,
    FrontendReport,
    PoolReport,
)
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from tests.api.daemon import ApiDaemon, put

REGION = Region("balancers")


def _report() -> BalancerReport:
    down = BackendReport(name="web-1", address="10.28.3.1:80", state="down", configured=100, weight=0, why="L4TOUT")
    details = {"web": FrontendReport(vip="192.0.2.80:80/tcp", pools=(PoolReport(up=0, total=1, backends=(down,)),))}
    return BalancerReport(
        version="1",
        table="t",
        configuration="c",
        health="h",
        intents="i",
        frontends={"web": "down", "dns": "up"},
        details=details,
        details_left_out=1,
    )


def test_a_server_answers_with_pools_weights_and_reasons_of_every_balancer(
    one_etcd: EtcdCluster, tmp_path: Path
) -> None:
    with ApiDaemon(tmp_path, settings={"store.endpoints": one_etcd.endpoints[0], "store.region": REGION.name}) as api:

        def get(path: str) -> Any:
            return json.loads(api.get(f"/api/v1/{path}")[2])

        put(one_etcd, BALANCER_REPORT.key(REGION, "lb-1"), BALANCER_REPORT.encode(_report()))
        put(one_etcd, BALANCER_REPORT.key(REGION, "lb-2"), b"rubbish")
        wait_until(lambda: "lb-1" in get("frontends")["reports"], "the report", within=60)
        found = get("frontends")
        assert (found["here"], list(found["reports"])) == ([], ["lb-1"])
        one = found["reports"]["lb-1"]
        assert (one["frontends"], one["details_left_out"]) == ({"web": "down", "dns": "up"}, 1)
        assert one["details"]["web"]["vip"] == "192.0.2.80:80/tcp"
        (pool,) = one["details"]["web"]["pools"]
        (backend,) = pool["backends"]
        assert (pool["up"], pool["total"]) == (0, 1)
        assert (backend["state"], backend["weight"], backend["configured"]) == ("down", 0, 100)
        assert backend["why"] == "L4TOUT"
        assert "details" not in get("fleet")["balancers"]["lb-1"], "the pools are streamed once"
