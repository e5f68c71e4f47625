"""`holdfast balancer` as real processes in namespaces, on nftables: a site with servers, balancers and a client.

Three servers stand behind a VIP of each family. Tests ask a balancer for its view over its control socket, and read the
actual state from the kernel.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.netlink.netns import inside
from holdfast.runtime.control import Request
from holdfast.testing.real.anycast import SERVERS, AnycastSite, address
from holdfast.testing.real.daemon import PATIENCE, Daemon
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.nginx import Nginx
from holdfast.testing.real.processes import wait_until

VIP = {4: "192.0.2.80", 6: "2001:db8::80"}
ALL = dict.fromkeys(SERVERS, 100)
FALL = 8
"""Failures until a server is down: few where it refuses, half a minute and more where it is only silent."""


def configuration(
    *,
    warm_up: str = "1s",
    window: str = "60s",
    table_size: int = 4093,
    sync: str = "2s",
    probe: str = "200ms",
    frontend: str = "",
    families: Sequence[int] = (4, 6),
    weights: Mapping[str, int] | None = None,
    snat: bool = False,
) -> Sequence[str]:
    """Return a configuration of three servers behind a VIP of each family. `warm_up` and `window` are the two start-up
    delays; `frontend` goes into both frontends."""
    backends = [
        f"    {name}-v{family}: {{address: '{address(name, family)}', port: 80, healthcheck: web}}"
        for family in VIP
        for name in SERVERS
    ]
    frontends = []
    for family in families:
        pool = ", ".join(f"{name}-v{family}: {{weight: {(weights or {}).get(name, 100)}}}" for name in SERVERS)
        fields = [
            f"address: '{VIP[family]}'",
            "port: 80",
            f"pools: [{{backends: {{{pool}}}}}]",
            f"table-size: {table_size}",
            *frontend.splitlines(),
        ]
        frontends += [f"    www-v{family}:", *(f"      {field}" for field in fields)]
    return [
        # Long enough that a busy machine never restarts a worker: that is not what these tests are about.
        "runtime: {heartbeat-after: 120s, stalled-after: 240s, supervisor-silent-after: 300s}",
        "balancer:",
        f"  startup-min-delay: {warm_up}",
        f"  startup-max-delay: {window}",
        f"  sync-interval: {sync}",
        f"  dataplane: {{kind: nftables, snat: {str(snat).lower()}}}",
        f"  healthchecks: {{web: {{type: http, interval: {probe}, timeout: 5s, fall: {FALL}}}}}",
        "  backends:",
        *backends,
        "  frontends:",
        *frontends,
    ]


class BalancerProcess(Daemon):
    """One balancer in its namespace."""

    def __init__(self, namespace: Namespace, home: Path, **settings: Any) -> None:
        super().__init__("balancer", namespace, home, configuration(**settings))

    def configure(self, **settings: Any) -> None:
        self.write_config(configuration(**settings))

    def reload(self) -> None:
        answer = self.request(Request("reload"))
        assert not answer.error, answer.error

    def status(self) -> Mapping[str, Any]:
        """Return what `holdfast balancer status -o json` shows; empty while it does not answer."""
        return self.ask("vips", "balancer") or {}

    def worker_pid(self, name: str, *, after: int = 0) -> int:
        """Wait until the worker, or a successor of `after`, has shown a pulse. Never returns 0: a signal to pid 0 would
        hit this process."""
        found: list[int] = []

        def is_shown() -> bool:
            found[:] = [self.worker(name).get("pid") or 0]
            return found[0] not in (0, after)

        wait_until(is_shown, f"a {name} runs", within=PATIENCE)
        return found[0]

    def worker_state(self, name: str) -> str:
        return str(self.worker(name).get("state"))

    def weights(self, family: int = 4) -> Mapping[str, int | None]:
        """Return the programmed weights by server."""
        for frontend in self.status().get("frontends", ()):
            if frontend["name"] == f"www-v{family}":
                return {one["backend"].rpartition("-")[0]: one["programmed"] for one in frontend["pools"][0]}
        return {}

    def digests(self) -> Mapping[str, str]:
        """Return the digests of the programmed tables; empty while it does not answer."""
        found: Mapping[str, str] = self.status().get("digests", {})
        return found

    def states(self) -> Mapping[str, str]:
        """Return the health of the backends."""
        return {one["name"]: one["state"] for one in self.status().get("backends", ())}

    def wait_weights(self, weights: Mapping[str, int], family: int = 4) -> None:
        try:
            wait_until(lambda: self.weights(family) == weights, f"weights are {weights}", within=PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{error}, but {self.weights(family)}: {self.process.output[-3000:]}") from error

    def is_released(self) -> bool:
        """Return True once it answers, has released all its frontends, and has nothing left to do."""
        moves = self.ask("vips", "moves")
        explained = [self.ask("vips", "explain", kind="frontend", name=f"www-v{family}") for family in VIP]
        known = [one["state"] for one in self.status().get("backends", ())]
        released = all(one is not None and one["released"] for one in explained)
        return moves is not None and not moves["total"] and released and bool(known) and "unknown" not in known

    def generation(self) -> int:
        """Return the kernel's count of changes to the tables of this namespace, whoever made them."""
        return inside(self.namespace.system_name, _generation)

    def table(self) -> str:
        """Return the whole table as `nft` shows it, without counters."""
        return self.namespace.run("nft", "--stateless", "list", "table", "inet", "holdfast")

    def buckets(self) -> Mapping[str, Sequence[str]]:
        """Return per map of buckets the server of each bucket, read from the kernel with `nft`, not with our code."""
        said = self.namespace.run("nft", "--json", "--stateless", "list", "table", "inet", "holdfast")
        maps = {one["map"]["name"]: one["map"].get("elem", []) for one in json.loads(said)["nftables"] if "map" in one}
        servers = {key["elem"]["val"]: str(to) for name in maps if "backend" in name for key, to in maps[name]}
        return {name: [servers[mark] for _, mark in sorted(found)] for name, found in maps.items() if "buckets" in name}


def _generation() -> int:
    with contextlib.closing(NftConnection("holdfast")) as kernel:
        return kernel.generation()


class BalancedSite:
    """The site with its servers and balancers running, and `routers` further namespaces that only route."""

    def __init__(self, net: NamespaceNetwork, *, balancers: int = 1, routers: int = 0, **settings: Any) -> None:
        self.site = AnycastSite(net, balancers=balancers + routers)
        self.client = self.site.client
        self.servers = {name: Nginx(one, net.home) for name, one in self.site.servers.items()}
        balancing = self.site.balancers[:balancers]
        self.balancers = [BalancerProcess(one, net.home / one.name, **settings) for one in balancing]
        for server in self.servers.values():
            server.start()
        for balancer in self.balancers:
            balancer.start()

    @property
    def balancer(self) -> BalancerProcess:
        return self.balancers[0]

    def wait_served(self) -> None:
        for balancer in self.balancers:
            for family in VIP:
                balancer.wait_weights(ALL, family)

    def end(self) -> None:
        for balancer in self.balancers:
            balancer.process.stop()
        for server in self.servers.values():
            server.process.stop(signal.SIGKILL)
