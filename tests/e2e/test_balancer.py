"""VIPs on the real kernel, from a client to the servers, with traffic all the time. All tests share one site, and leave
it as they found it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from holdfast.testing.fault import fault
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.anycast import SERVERS, address
from holdfast.testing.real.flows import Clients, FlowCounts, run_clients
from holdfast.testing.real.netns import network
from tests.e2e.balancer_harness import ALL, VIP, BalancedSite, failures, stage, wait

FOREIGN = """\
table inet firewall {
  chain input { type filter hook input priority 0; policy accept; tcp dport 12345 drop; }
  set friends { type ipv4_addr; elements = { 198.51.100.1 }; }
}
table ip holdfast-like {
  chain prerouting { type nat hook prerouting priority -90; }
}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[BalancedSite]:
    with or_skip(network()) as net, stage(net, warm_up="200ms") as made:
        script = net.home / "foreign.nft"
        script.write_text(FOREIGN)
        made.balancer.namespace.run("nft", "-f", str(script))
        yield made


@pytest.fixture
def here(site: BalancedSite) -> BalancedSite:
    wait(site.balancer.is_released, "the balancer has come to rest")
    site.wait_served()
    return site


@pytest.fixture
def clients(here: BalancedSite) -> Iterator[Clients]:
    with run_clients(here.client, VIP[4], 80) as made:
        made.after(50)
        yield made


@pytest.fixture
def mended(here: BalancedSite) -> Iterator[None]:
    """Afterwards the balancer runs as it ships, whatever was removed from it meanwhile."""
    yield
    here.balancer.kill()
    here.balancer.start()


def broken(before: FlowCounts, after: FlowCounts) -> set[str]:
    """The servers that had flows which broke between the two."""
    return {server for server, count in after.broken.items() if count > before.broken.get(server, 0)}


@pytest.mark.parametrize("family", [4, 6])
def test_a_vip_spreads_its_clients_over_all_servers(here: BalancedSite, family: int) -> None:
    with run_clients(here.client, VIP[family], 80, requests=1, pause=0) as clients:
        counts = clients.after(300)
    assert failures(FlowCounts(), counts) == []
    assert set(counts.opened) == set(SERVERS)
    assert min(counts.opened.values()) > 50


def tracked(here: BalancedSite, server: str) -> int:
    """Flows of clients to that server that the kernel knows of."""
    about = ["--orig-dst", VIP[4], "--reply-src", address(server)]
    return len(here.balancer.namespace.run("conntrack", "-L", *about).splitlines())


def test_a_killed_server_is_taken_out_and_the_others_clients_do_not_notice(
    here: BalancedSite, clients: Clients
) -> None:
    before = clients.counts()
    here.servers["web-2"].kill()
    here.balancer.wait_weights({**ALL, "web-2": 0})
    settled = clients.renewed()
    assert broken(before, settled) <= {"web-2"}
    without = clients.after(300)
    assert failures(settled, without) == []
    assert set(without.established) <= {"web-1", "web-3"}
    wait(lambda: tracked(here, "web-2") == 0, "the kernel has forgotten the dead server's flows")
    assert tracked(here, "web-1") > 0
    here.servers["web-2"].start()
    here.balancer.wait_weights(ALL)
    back = clients.after(300)
    assert failures(without, back) == []
    assert back.opened["web-2"] > settled.opened.get("web-2", 0)  # it may have been killed before it had any


def restarted(here: BalancedSite, clients: Clients, rounds: int, seed: int) -> None:
    """Kills the balancer at any moment, that often; sometimes it was let come to rest before."""
    chance = random.Random(seed)
    generation, table, before = here.balancer.generation(), here.balancer.table(), clients.counts()
    for number in range(rounds):
        here.balancer.kill()
        here.balancer.start()
        if number % 10 == 9:
            wait(here.balancer.is_released, "the balancer has come to rest")
        else:
            time.sleep(chance.uniform(0.0, 1.2))  # the moment of death is the input of this test
    after = clients.after(100)
    assert failures(before, after) == []
    assert here.balancer.generation() == generation
    assert here.balancer.table() == table


def test_B1_a_balancer_that_is_killed_twenty_times_is_noticed_by_no_client(
    here: BalancedSite, clients: Clients
) -> None:
    restarted(here, clients, 20, seed=1)


@pytest.mark.soak
def test_a_balancer_that_is_killed_a_hundred_times_is_noticed_by_no_client(
    here: BalancedSite, clients: Clients
) -> None:
    restarted(here, clients, 100, seed=2)


def anything(chance: random.Random) -> dict[str, Any]:
    """A configuration that ends no flow: other weights, checks and attributes, with the other VIP or without it."""
    weights = {name: chance.choice([0, 30, 100]) for name in SERVERS}
    weights[chance.choice(SERVERS)] = 100
    fields = ["slow-start: 1s", "panic-threshold: 30", "src-ip-sticky: true", "description: other"]
    return {
        "weights": weights,
        "probe": chance.choice(["100ms", "200ms", "500ms"]),
        "table_size": chance.choice([1021, 4093]),
        "families": chance.choice([(4,), (4, 6)]),
        "frontend": "\n".join(chance.sample(fields, chance.randrange(len(fields)))),
    }


def reloaded(here: BalancedSite, clients: Clients, rounds: int, seed: int) -> None:
    """Reloads random configurations, that often; every fourth time one comes to rest and is reloaded unchanged."""
    chance, before, balancer = random.Random(seed), clients.counts(), here.balancer

    def comes_to_rest(weights: Mapping[str, int]) -> None:
        balancer.wait_weights(weights)
        wait(lambda: (balancer.ask("vips", "moves") or {}).get("total") == 0, "nothing is left to do")

    try:
        for number in range(rounds):
            settings = anything(chance)
            if number % 4 == 3:
                settings["families"] = (4, 6)  # a VIP is deleted only after the start-up window
            balancer.configure(warm_up="200ms", **settings)
            balancer.reload()
            if number % 4 == 3:
                comes_to_rest(settings["weights"])
                generation = balancer.generation()
                balancer.reload()
                assert balancer.ask("vips", "sync")
                comes_to_rest(settings["weights"])
                assert balancer.generation() == generation, f"round {number}: written, and nothing had changed"
            else:
                time.sleep(chance.uniform(0.0, 0.3))  # the moment of the next reload is the input of this test
        assert failures(before, clients.after(100)) == []
    finally:
        balancer.configure(warm_up="200ms")
        balancer.reload()
        here.wait_served()
    assert failures(before, clients.after(100)) == []


def test_B5_random_reloads_are_noticed_by_no_client_and_unchanged_ones_write_nothing(
    here: BalancedSite, clients: Clients
) -> None:
    reloaded(here, clients, 8, seed=3)


@pytest.mark.soak
def test_a_hundred_random_reloads_are_noticed_by_no_client_and_unchanged_ones_write_nothing(
    here: BalancedSite, clients: Clients
) -> None:
    reloaded(here, clients, 100, seed=4)


@fault(
    "B1",
    without="holdfast.balancer.warm_up:WarmUp.judge",
    by="tests.balancer.test_reconciler:open_at_once",
    sees=(AssertionError, r"here.balancer.generation\(\) == generation"),
)
def test_B1_a_server_that_is_slow_to_show_its_health_keeps_its_flows_over_a_restart(
    here: BalancedSite, clients: Clients, mended: None
) -> None:
    server = here.site.servers["web-3"]
    generation, before = here.balancer.generation(), clients.counts()
    server.run("nft", "add table ip deaf; add chain ip deaf input { type filter hook input priority 0; }")
    server.run("nft", "add rule ip deaf input ip saddr 10.2.0.0/16 drop")  # probes only: clients come from elsewhere
    try:
        here.balancer.kill()
        here.balancer.start()
        wait(lambda: here.balancer.states().get("web-1-v4") == "up", "the balancer knows the others")
        unknown = clients.after(100)
        later = clients.after(500)
        assert here.balancer.generation() == generation
        assert failures(before, later) == []
        assert later.opened["web-3"] > unknown.opened["web-3"]
    finally:
        server.run("nft", "delete table ip deaf")
        here.wait_served()


def test_B15_a_table_that_is_deleted_behind_our_back_comes_back(here: BalancedSite, clients: Clients) -> None:
    before = here.balancer.buckets()
    here.balancer.namespace.run("nft", "delete", "table", "inet", "holdfast")
    wait(lambda: "inet holdfast" in here.balancer.namespace.run("nft", "list tables"), "the table is back")
    here.wait_served()
    settled = clients.renewed()
    assert failures(settled, clients.after(300)) == []
    assert here.balancer.buckets() == before


def test_a_reload_under_load_moves_new_flows_and_breaks_none(here: BalancedSite, clients: Clients) -> None:
    before = clients.counts()
    here.balancer.configure(warm_up="200ms", weights={"web-1": 0})
    here.balancer.reload()
    here.balancer.wait_weights({**ALL, "web-1": 0})
    moved = clients.renewed()
    later = clients.after(300)
    assert failures(before, later) == []
    assert later.opened.get("web-1") == moved.opened.get("web-1")
    here.balancer.configure(warm_up="200ms")
    here.balancer.reload()
    here.balancer.wait_weights(ALL)
    assert failures(before, clients.after(100)) == []


def test_B18_tables_of_others_are_as_they_were(here: BalancedSite) -> None:
    """Last in this file: all that came before has happened beside them."""
    shown = here.balancer.namespace.run("nft", "list ruleset")
    assert "tcp dport 12345 drop" in shown
    assert "elements = { 198.51.100.1 }" in shown
    assert "table ip holdfast-like" in shown
