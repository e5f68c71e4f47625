"""`holdfast balancer` as real processes in a namespace, on nftables: a site with servers, balancers and a client.

Three servers stand behind a VIP of each family. What a balancer says of itself is asked over its control socket; what
is true is read from the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.netlink.netns import inside
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.anycast import SERVERS, AnycastSite, address
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.nginx import Nginx
from holdfast.testing.real.processes import Process, children, run, running, wait_until

HOLDFAST = (sys.executable, "-P", "-m", "holdfast.cli")
VIP = {4: "192.0.2.80", 6: "2001:db8::80"}
ALL = dict.fromkeys(SERVERS, 100)
PATIENCE = 180.0
FALL = 8
"""Failures until a server is down: few where it refuses, half a minute and more where it is only silent."""


def configuration(
    home: Path,
    *,
    warm_up: str = "1s",
    window: str = "60s",
    table_size: int = 4093,
    sync: str = "2s",
    probe: str = "200ms",
    frontend: str = "",
    families: Sequence[int] = (4, 6),
    weights: Mapping[str, int] | None = None,
) -> str:
    """Three servers behind a VIP of each family. `warm_up` and `window` are its two delays; `frontend` goes into both
    frontends."""
    lines = [
        f"paths: {{state: {home}/state, runtime: {home}/run}}",
        # A busy machine is none of what is tried here.
        "runtime: {heartbeat-after: 120s, stalled-after: 240s, supervisor-silent-after: 300s}",
        "balancer:",
        f"  startup-min-delay: {warm_up}",
        f"  startup-max-delay: {window}",
        f"  sync-interval: {sync}",
        f"  dataplane: {{kind: nftables, table-size: {table_size}}}",
        f"  healthchecks: {{web: {{type: http, interval: {probe}, timeout: 5s, fall: {FALL}}}}}",
        "  backends:",
    ]
    for family in VIP:
        lines += [
            f"    {name}-v{family}: {{address: '{address(name, family)}', port: 80, healthcheck: web}}"
            for name in SERVERS
        ]
    lines.append("  frontends:")
    for family in families:
        vip = VIP[family]
        pool = ", ".join(f"{name}-v{family}: {{weight: {(weights or {}).get(name, 100)}}}" for name in SERVERS)
        lines += [
            f"    www-v{family}:",
            f"      address: '{vip}'",
            "      port: 80",
            f"      pools: [{{backends: {{{pool}}}}}]",
        ]
        lines += [f"      {line}" for line in frontend.splitlines()]
    return "\n".join(lines) + "\n"


class BalancerProcess:
    """One balancer in its namespace."""

    def __init__(self, namespace: Namespace, home: Path, **settings: Any) -> None:
        self.namespace = namespace
        self.home = home
        self.file = home / "holdfast.yaml"
        home.mkdir(parents=True)
        self.configure(**settings)
        command = namespace.command(*HOLDFAST, "balancer", "--config", str(self.file))
        self.process = Process(command, log=home / "log")

    def configure(self, **settings: Any) -> None:
        self.file.write_text(configuration(self.home, **settings))

    def start(self) -> None:
        self.process.start()

    def kill(self) -> None:
        """SIGKILL for all of it."""
        self.process.pause()  # nobody is started between the count and the kill
        pids = [self.process.pid, *children(self.process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        wait_until(lambda: not any(map(running, pids)), "all of the balancer's processes are gone")

    def reload(self) -> None:
        answer = self._ask(Request("reload"))
        assert not answer.error, answer.error

    def status(self) -> Mapping[str, Any]:
        """What `holdfast balancer status -o json` shows; empty while it does not answer."""
        answer = self._ask(Request("tell", {"do": "balancer"}, "vips"))
        return {} if answer.error else answer.result

    def _worker(self, name: str) -> Mapping[str, Any]:
        answer = self._ask(Request("status"))
        found = [] if answer.error else [one for one in answer.result["workers"] if one["name"] == name]
        return found[0] if found else {}

    def worker_pid(self, name: str, *, after: int = 0) -> int:
        """Waits until the worker, or one that took the place of `after`, has shown a pulse. Never 0: to signal that
        would be to signal ourselves."""
        found: list[int] = []

        def is_shown() -> bool:
            found[:] = [self._worker(name).get("pid") or 0]
            return found[0] not in (0, after)

        wait_until(is_shown, f"a {name} runs", within=PATIENCE)
        return found[0]

    def worker_state(self, name: str) -> str:
        return str(self._worker(name).get("state"))

    def said(self, *words: str) -> str:
        """What `holdfast` prints about it."""
        return run([*HOLDFAST, *words, "--runtime", str(self.home / "run")])

    def weights(self, family: int = 4) -> Mapping[str, int | None]:
        """What is programmed, by server."""
        for frontend in self.status().get("frontends", ()):
            if frontend["name"] == f"www-v{family}":
                return {one["backend"].rpartition("-")[0]: one["programmed"] for one in frontend["pools"][0]}
        return {}

    def digests(self) -> Mapping[str, str]:
        """Of the tables that are programmed; empty while it does not answer."""
        found: Mapping[str, str] = self.status().get("digests", {})
        return found

    def states(self) -> Mapping[str, str]:
        """How the backends are."""
        return {one["name"]: one["state"] for one in self.status().get("backends", ())}

    def comes_to(self, weights: Mapping[str, int], family: int = 4) -> None:
        try:
            wait_until(lambda: self.weights(family) == weights, f"weights are {weights}", within=PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{error}, but {self.weights(family)}: {self.process.output[-3000:]}") from error

    def is_released(self) -> bool:
        """Whether it answers, has let all its frontends through, and has nothing left to do."""
        told = self._ask(Request("tell", {"do": "moves"}, "vips"))
        known = [one["state"] for one in self.status().get("backends", ())]
        explained = [self._ask(Request("tell", {"do": "explain", "args": args}, "vips")) for args in _frontends()]
        released = all(not one.error and one.result["released"] for one in explained)
        return not told.error and not told.result["total"] and released and bool(known) and "unknown" not in known

    def generation(self) -> int:
        """The kernel's own count of changes to the tables of this namespace, ours or anybody's."""
        return inside(self.namespace.system_name, _generation)

    def table(self) -> str:
        """The whole table as `nft` shows it, without what only counts."""
        return self.namespace.run("nft", "--stateless", "list", "table", "inet", "holdfast")

    def buckets(self) -> Mapping[str, Sequence[str]]:
        """Per map of buckets the server that each bucket leads to, read from the kernel by another tool than ours."""
        said = self.namespace.run("nft", "--json", "--stateless", "list", "table", "inet", "holdfast")
        maps = {one["map"]["name"]: one["map"].get("elem", []) for one in json.loads(said)["nftables"] if "map" in one}
        servers = {key["elem"]["val"]: str(to) for name in maps if "backend" in name for key, to in maps[name]}
        return {name: [servers[mark] for _, mark in sorted(found)] for name, found in maps.items() if "buckets" in name}

    def _ask(self, request: Request) -> Any:
        return asyncio.run(ask(self.home / "run" / "balancer.sock", request))


def _frontends() -> list[dict[str, str]]:
    return [{"kind": "frontend", "name": f"www-v{family}"} for family in VIP]


def _generation() -> int:
    with contextlib.closing(NftConnection("holdfast")) as kernel:
        return kernel.generation()


class Stage:
    """The site with its servers running, and as many balancers as asked for; then namespaces that only route."""

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
                balancer.comes_to(ALL, family)

    def end(self) -> None:
        for balancer in self.balancers:
            balancer.process.stop()
        for server in self.servers.values():
            server.process.stop(signal.SIGKILL)
