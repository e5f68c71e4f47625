"""A small anycast site in network namespaces: one client, balancers, web servers behind them. IPv4 and IPv6.

    with network() as net:
        site = AnycastSite(net)
        site.client.run("curl", "http://10.3.0.1")

                      ┌── lb-1 ──┬── web-1  10.3.0.1  fd00:3::1
    client ───────────┤          ├── web-2  10.3.0.2  fd00:3::2
                      └── lb-2 ──┴── web-3  10.3.0.3  fd00:3::3

Each balancer has a cable to the client and one to every server. A server has one address for all balancers and sends
each reply through the balancer that the request came by, because that one translated it. The client reaches servers and
VIPs (192.0.2.0/24, 2001:db8::/32) through one balancer; `lead_through` picks another, as routing does when a site
withdraws. Only the wiring: nothing listens and nothing balances here.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.testing.real.netns import Namespace, NamespaceNetwork

SERVERS = ("web-1", "web-2", "web-3")
VIPS = ("192.0.2.0/24", "2001:db8::/32")
_DIRECT = ("10.3.0.0/24", "fd00:3::/64")


def address(server: str, family: int = 4) -> str:
    """Return the address of that server."""
    number = SERVERS.index(server) + 1
    return f"10.3.0.{number}" if family == 4 else f"fd00:3::{number}"


class AnycastSite:
    """The namespaces of the site, wired and routed."""

    def __init__(self, net: NamespaceNetwork, *, balancers: int = 1) -> None:
        self._net = net
        self.client = net.namespace("client")
        self.servers = {name: net.namespace(name) for name in SERVERS}
        for name, server in self.servers.items():
            server.bring_up("lo", f"{address(name)}/32", f"{address(name, 6)}/128")
        self.balancers = [self._balancer(number) for number in range(1, balancers + 1)]
        self.lead_through(1)

    def _balancer(self, number: int) -> Namespace:
        """Add a balancer between the client and every server, with routes in both directions."""
        made = self._net.namespace(f"lb-{number}")
        made.forward()
        self._cable(made, self.client, f"1.{number}")
        for place, (name, server) in enumerate(self.servers.items(), 1):
            segment = f"2.{10 * number + place}"
            self._cable(made, server, segment)
            made.batch(_routes([f"{address(name)}/32", f"{address(name, 6)}/128"], segment, 2))
            server.batch(_routes([f"10.1.{number}.0/24", f"fd00:1:{number}::/64"], segment, 1))
        return made

    def lead_through(self, balancer: int) -> None:
        """Route the client's new connections through that balancer (1, 2, …)."""
        self.client.batch(_routes([*VIPS, *_DIRECT], f"1.{balancer}", 1))

    def spread(self, balancer: int, shared: str) -> None:
        """Give all servers a shared IPv4 address, and make that balancer's namespace spread connections to it over them
        by routing alone: the baseline for the cost of balancing."""
        made = self.balancers[balancer - 1]
        hops = [f"nexthop via 10.2.{10 * balancer + place}.2" for place in range(1, len(SERVERS) + 1)]
        made.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy")  # hash ports, too
        made.batch([f"route add {shared}/32 {' '.join(hops)}"])
        for server in self.servers.values():
            server.bring_up("lo", f"{shared}/32")

    def _cable(self, balancer: Namespace, other: Namespace, segment: str) -> None:
        """Connect the two; the balancer is .1, the other one .2."""
        device = self._net.cable(balancer, other, f"10.{segment}.1/24", f"10.{segment}.2/24")
        balancer.bring_up(device, f"{_six(segment, 1)}/64")
        other.bring_up(device, f"{_six(segment, 2)}/64")


def _routes(prefixes: Sequence[str], segment: str, place: int) -> Sequence[str]:
    """Return the `ip` commands that route these prefixes to that end of a cable."""
    via = {False: f"10.{segment}.{place}", True: _six(segment, place)}
    return [f"route replace {prefix} via {via[':' in prefix]}" for prefix in prefixes]


def _six(segment: str, place: int) -> str:
    return f"fd00:{segment.replace('.', ':')}::{place}"
