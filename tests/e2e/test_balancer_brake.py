"""The brake on VIPs on the real kernel, over a kill and a restart of the balancer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from holdfast.runtime.control import Request
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import Daemon
from holdfast.testing.real.netns import network
from tests.e2e.balancer_harness import wait


def configuration(frontends: int) -> list[str]:
    """Return a configuration with that many frontends. Nothing answers on their backend, which does not matter here."""
    pool = "pools: [{backends: {one: }}]"
    return [
        "balancer:",
        "  startup-min-delay: 100ms",
        "  startup-max-delay: 200ms",
        "  dataplane: {kind: nftables}",
        "  healthchecks: {web: {type: tcp, interval: 100ms, timeout: 1s}}",
        "  backends: {one: {address: 127.0.0.1, port: 9, healthcheck: web}}",
        "  frontends:",
        *[f"    f{n}: {{address: 192.0.2.{n}, port: 80, table-size: 1021, {pool}}}" for n in range(1, frontends + 1)],
    ]


def vips(daemon: Daemon) -> int:
    """Count the VIPs in the kernel with `nft`, not with our code; 0 while there is no table."""
    try:
        said = daemon.namespace.run("nft", "--json", "--stateless", "list", "map", "inet", "holdfast", "vip4-port")
    except RuntimeError:
        return 0
    return sum(len(one["map"].get("elem", ())) for one in json.loads(said)["nftables"] if "map" in one)


@pytest.fixture
def balancer() -> Iterator[Daemon]:
    with or_skip(network()) as net:
        made = Daemon("balancer", net.namespace("lb"), net.home / "lb", configuration(60))
        try:
            yield made
        finally:
            made.process.stop()


def test_C27_a_balancer_that_is_killed_within_the_minute_still_knows_which_vips_it_deleted(balancer: Daemon) -> None:
    balancer.start()
    wait(lambda: vips(balancer) == 60, "60 VIPs are programmed")
    balancer.write_config(configuration(45))
    assert not balancer.request(Request("reload")).error
    wait(lambda: vips(balancer) == 45, "15 VIPs are deleted")
    balancer.kill()
    balancer.write_config(configuration(39))
    balancer.start()
    wait(lambda: balancer.worker("vips").get("state") == "held: brake", "the brake holds")
    assert vips(balancer) == 45
    assert "would delete 21 of 60 vip" in balancer.cli("gate", "list")
