"""Routes that vanish, with a real prober: one backend's route takes that backend out, all routes take nothing out, and
`withdraw-after` withdraws the address once health could not be verified for that long. One site for all tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from holdfast.testing.fault import fault
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.anycast import SERVERS, address
from holdfast.testing.real.balancers import FALL
from holdfast.testing.real.flows import run_clients
from holdfast.testing.real.netns import network
from holdfast.testing.real.processes import wait_until
from tests.e2e.balancer_harness import ALL, VIP, BalancedSite, stage, wait

SETTINGS: dict[str, Any] = {
    "warm_up": "200ms",
    "window": "2s",
    "frontend": "announce: {device: lo, withdraw-delay: 1s}\nwithdraw-after: 6s",
}
LOST, *OTHERS = SERVERS
_WITHDRAW_AFTER = 6.0
_PROBE = 0.2
_SLACK = 5.0
"""Seconds for reports, and for probes that were late on a busy machine and do not count."""


@pytest.fixture(scope="module")
def site() -> Iterator[BalancedSite]:
    with or_skip(network()) as net, stage(net, **SETTINGS) as made:
        yield made


@pytest.fixture
def here(site: BalancedSite) -> BalancedSite:
    wait(site.balancer.is_released, "the balancer has come to rest")
    site.wait_served()
    wait(lambda: announced(site) == set(VIP.values()), "all VIPs are announced")
    return site


@pytest.fixture
def mended(here: BalancedSite) -> Iterator[None]:
    """Afterwards the balancer runs as it ships, whatever was removed from it meanwhile."""
    yield
    _restart(here)


def _restart(here: BalancedSite) -> None:
    here.balancer.kill()
    here.balancer.start()
    wait(here.balancer.is_released, "the balancer has come to rest")


def announced(here: BalancedSite) -> set[str]:
    shown = here.balancer.namespace.run("ip", "-oneline", "address", "show", "dev", "lo")
    return {line.split()[3].partition("/")[0] for line in shown.splitlines()} & set(VIP.values())


@contextlib.contextmanager
def lost_routes(here: BalancedSite, servers: Sequence[str]) -> Iterator[None]:
    """This machine has no route to these servers, in both families."""
    namespace = here.balancer.namespace
    prefixes = [prefix for name in servers for prefix in (f"{address(name)}/32", f"{address(name, 6)}/128")]
    routes = [_route(here, prefix) for prefix in prefixes]
    namespace.batch([f"route del {prefix}" for prefix in prefixes])
    try:
        yield
    finally:
        namespace.batch([f"route replace {route}" for route in routes])


def _route(here: BalancedSite, prefix: str) -> str:
    family = "-6" if ":" in prefix else "-4"
    words = here.balancer.namespace.run("ip", family, "route", "show", prefix).split()
    return f"{prefix} via {words[words.index('via') + 1]}"


def down_after(here: BalancedSite, backend: str, began: float) -> float:
    """Return the seconds from `began` to the moment at which the backend went down."""
    explained = here.balancer.ask("vips", "explain", kind="backend", name=backend)
    assert explained is not None
    last = explained["transitions"][-1]
    assert last["new"] == "down"
    return time.monotonic() - began - float(last["ago_s"])


def states(here: BalancedSite, servers: Sequence[str]) -> set[str]:
    found = here.balancer.states()
    return {found[f"{name}-v{family}"] for name in servers for family in VIP}


@fault(
    "B27",
    without="holdfast.balancer.desired.reachability:Reachability.is_failing",
    returns=False,
    sees=(TimeoutError, r'wait_until\(lambda: states\(here, \[LOST\]\) == \{"down"\}'),
)
def test_B27_a_backend_whose_route_vanishes_is_down_within_fall_probes_while_the_others_serve(
    here: BalancedSite, mended: None
) -> None:
    _restart(here)  # with the protection of this run
    with run_clients(here.client, VIP[4], 80) as clients:
        clients.after(50)
        began = time.monotonic()
        with lost_routes(here, [LOST]):
            wait_until(lambda: states(here, [LOST]) == {"down"}, "it is down", within=30)
            assert down_after(here, f"{LOST}-v4", began) < FALL * _PROBE * 1.1 + _SLACK
            assert states(here, OTHERS) == {"up"}
            for family in VIP:
                here.balancer.wait_weights({**ALL, LOST: 0}, family)
            settled = clients.renewed()
            assert clients.after(100).failed == settled.failed
            assert "NOROUTE" in here.balancer.cli("explain", "backend", f"{LOST}-v4")
            assert announced(here) == set(VIP.values())
    here.wait_served()


def test_health_that_cannot_be_verified_withdraws_the_address_after_its_time_and_it_comes_back(
    here: BalancedSite,
) -> None:
    began = time.monotonic()
    with lost_routes(here, SERVERS):
        wait(lambda: announced(here) == set(), "no VIP is announced")
        assert time.monotonic() - began >= _WITHDRAW_AFTER
        assert states(here, SERVERS) == {"up"}, "nothing is known of the servers, so their state stays"
        for family in VIP:
            assert here.balancer.weights(family) == ALL
        assert "withdraw-after" in here.balancer.cli("explain", "frontend", "www-v4")
    wait(lambda: announced(here) == set(VIP.values()), "all VIPs are announced")
    assert here.balancer.weights() == ALL


def test_one_lost_route_withdraws_nothing_however_long(here: BalancedSite) -> None:
    with lost_routes(here, [LOST]):
        wait(lambda: states(here, [LOST]) == {"down"}, "it is down")
        until = time.monotonic() + 2 * _WITHDRAW_AFTER
        wait(lambda: announced(here) != set(VIP.values()) or time.monotonic() > until, "the time is over")
        assert announced(here) == set(VIP.values())
