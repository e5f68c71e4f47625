"""Traffic by names: each frontend shows a backend by its own name for it."""

from __future__ import annotations

from holdfast.balancer.dataplane.api import Counters
from holdfast.balancer.desired.state import BalancerState
from holdfast.balancer.services.resolved import resolve_services
from holdfast.balancer.traffic import named
from holdfast.balancer.vip import NO_BACKEND, Vip, VipKey, backend
from holdfast.balancer.warm_up import WarmUp
from holdfast.model.base.time import NEVER, seconds
from tests.balancer.harness import configuration

TWO_NAMES = configuration(
    "backends:\n"
    "  dns-1: {address: 10.0.0.1, port: 80}\n"
    "  shop-1: {address: 10.0.0.1, port: 80}\n"
    "frontends:\n"
    "  dns: {address: 192.0.2.1, port: 80, pools: [{backends: {dns-1: {}}}]}\n"
    "  shop: {address: 192.0.2.2, port: 80, pools: [{backends: {shop-1: {}}}]}"
)


def test_an_address_that_two_frontends_name_differently_counts_for_each_by_its_name() -> None:
    dns, shop = (VipKey(Vip.of(f"192.0.2.{n}", "tcp", 80), backend("10.0.0.1", 80)) for n in (1, 2))
    gone = VipKey(Vip.of("192.0.2.2", "tcp", 80), backend("10.0.0.9", 80))
    counts = {dns: Counters(opened=1), shop: Counters(opened=2), gone: Counters(opened=3)}
    assert named(counts, resolve_services(TWO_NAMES)) == {
        ("dns", "dns-1"): Counters(opened=1),
        ("shop", "shop-1"): Counters(opened=2),
    }


def test_explain_names_the_backend_of_that_frontend_also_where_the_dataplane_changes_its_port() -> None:
    services = resolve_services(TWO_NAMES)
    state = BalancerState(services, WarmUp(NEVER, seconds(5), seconds(30)))
    assert state.names_in(services.frontends["dns"]) == {backend("10.0.0.1", 80): "dns-1"}
    state.canonical = lambda _vip, objects: [
        (key if key.backend == NO_BACKEND else VipKey(key.vip, key.backend._replace(port=443)), value)
        for key, value in objects
    ]
    assert state.names_in(services.frontends["shop"]) == {backend("10.0.0.1", 443): "shop-1"}
