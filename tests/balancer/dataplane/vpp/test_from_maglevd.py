"""A balancer with an imported configuration on a VPP that maglevd has programmed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.balancer.services.maglevd.translate import translate
from holdfast.config import ConfigFile, Loaded, resolve
from holdfast.testing.fakes.vpp import FakeServer, FakeVip
from tests.balancer.dataplane.nftables.reconciling import comes_true, compared
from tests.balancer.dataplane.vpp.site import PLACE, VppSite, on_vpp, server

FILE = b"""\
maglev:
  vpp: {lb: {sync-interval: 1h}}
  healthchecks: {web: {type: tcp, port: 80, interval: 1s, fall: 1}}
  backends:
    b1: {address: 10.0.0.1, healthcheck: web}
    b2: {address: 10.0.0.2, healthcheck: web}
    b3: {address: 10.0.0.3, healthcheck: web}
    six: {address: "2001:db8::a", healthcheck: web}
  frontends:
    www:
      {address: 192.0.2.1, protocol: tcp, port: 80,
       pools: [{name: first, backends: {b1: {}, b2: {weight: 50}}}, {name: second, backends: {b3: {}}}]}
    www6: {address: "2001:db8::1", protocol: tcp, port: 80, pools: [{name: first, backends: {six: {}}}]}
"""
SIX = ("2001:db8::1/128", 6, 80)
FOREIGN = ("198.51.100.9/32", 17, 53)


def as_of_maglevd(address: str, encap: int, weights: Mapping[str, int]) -> FakeVip:
    fields: dict[str, Any] = {"pfx": address, "encap": encap, "dscp": 0, "new_flows_table_length": 1024}
    return FakeVip(fields, {server: FakeServer(weight) for server, weight in weights.items()})


def test_what_maglevd_left_is_taken_over_without_one_call_that_changes_it(tmp_path: Path) -> None:
    loaded = resolve(ConfigFile("ours", translate("maglev.yaml", FILE).text.encode()), {})
    assert isinstance(loaded, Loaded)

    async def story(site: VppSite) -> None:
        await compared(site.reconciler)
        site.prober.down = {"b2"}
        await comes_true(lambda: site.weights()[server(2)] == 0)
        await compared(site.reconciler)
        assert {(name, str(fields["as_address"])) for name, fields in site.vpp.calls} == {
            ("lb_as_set_weight", server(2))
        }
        assert FOREIGN in site.vpp.vips

    holding = {
        PLACE: as_of_maglevd(PLACE[0], 0, {server(1): 100, server(2): 50, server(3): 0}),
        SIX: as_of_maglevd(SIX[0], 1, {"2001:db8::a": 100}),
        FOREIGN: as_of_maglevd(FOREIGN[0], 0, {}),
    }
    on_vpp(loaded.config.balancer, tmp_path, story, holding)
