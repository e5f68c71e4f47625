"""A site behind a real VPP: a client, VPP as router and balancer, and servers that answer directly (L3DSR).

VPP gives a packet the address of a server and a DSCP mark; each server restores the VIP from the mark with one nftables
rule, and its answer goes to the client past VPP's lb plugin. The balancer has a namespace and wires of its own, over
which it probes the servers.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from holdfast.testing.real.daemon import PATIENCE, Daemon
from holdfast.testing.real.netns import Namespace, NamespaceNetwork, join, network
from holdfast.testing.real.nginx import Nginx
from holdfast.testing.real.processes import tool, wait_until
from holdfast.testing.real.vpp import Vpp

SERVERS = ("s1", "s2", "s3")
VIP = "192.0.2.80"
DSCP = 10
SOURCE = "10.8.0.1"
"""Address of VPP from which GRE packets come."""
_RESTORE = """\
table ip l3dsr {{
  chain prerouting {{
    type filter hook prerouting priority raw
    ip dscp {dscp} ip daddr set {vip} notrack
  }}
}}
"""


def server_address(name: str) -> str:
    """Address at which VPP and the prober reach a server."""
    return f"10.8.{SERVERS.index(name) + 1}.2"


class VppSite:
    """Everything in namespaces of its own. VPP is given the wires to client and servers after each start."""

    def __init__(self, net: NamespaceNetwork) -> None:
        self.client, self.middle, self.control = (net.namespace(name) for name in ("client", "vpp", "control"))
        self.servers = {name: net.namespace(name) for name in SERVERS}
        self._home = net.home
        self.vpp = Vpp(_folder(net.home / "vpp"), self.middle)
        self._wire(net, self.client, "client", "10.8.0")
        self.client.run("ip", "route", "add", VIP, "via", "10.8.0.1")
        for number, (name, namespace) in enumerate(self.servers.items(), 1):
            self._wire(net, namespace, name, f"10.8.{number}")
            namespace.batch([f"address add {VIP}/32 dev lo"])
            device = net.cable(self.control, namespace, f"10.7.{number}.1/24", f"10.7.{number}.2/24")
            self.control.batch([f"route add {server_address(name)} via 10.7.{number}.2 dev {device}"])
            rules = net.home / f"{name}.nft"
            rules.write_text(_RESTORE.format(dscp=DSCP, vip=VIP))
            namespace.run(tool("nft"), "-f", str(rules))
        self.webs = {name: Nginx(namespace, net.home) for name, namespace in self.servers.items()}
        for web in self.webs.values():
            web.start()

    def _wire(self, net: NamespaceNetwork, namespace: Namespace, name: str, subnet: str) -> None:
        """Connect a namespace with VPP, which has .1; what checksums a veth leaves out would be wrong behind VPP."""
        join(self.middle, f"to-{name}", namespace, "up0")
        self.middle.bring_up(f"to-{name}")
        namespace.bring_up("up0", f"{subnet}.2/24")
        namespace.run("ip", "route", "add", "default", "via", f"{subnet}.1")
        for where, device in ((self.middle, f"to-{name}"), (namespace, "up0")):
            where.run(tool("ethtool"), "-K", device, "rx", "off", "tx", "off", "tso", "off", "gso", "off", "gro", "off")

    def balancer(self, tunnel: str = f"encapsulation: l3dsr, dscp: {DSCP}") -> VppBalancer:
        return VppBalancer(self.control, self._home / "balancer", self.vpp, tunnel)

    def restart_vpp(self) -> float:
        """Kill VPP and start it again: it has its interfaces, and no VIP. Returns when its API answered."""
        self.vpp.process.kill()
        self.vpp.api_socket.unlink(missing_ok=True)
        return self.start_vpp()

    def start_vpp(self) -> float:
        """Start VPP and connect it. Returns when its API answered."""
        self.vpp.start()
        answered = time.monotonic()
        for subnet, name in enumerate(("client", *SERVERS)):
            # Without this, VPP's packets carry an offload header, and the kernel drops them.
            self.vpp.cli("create", "host-interface", "name", f"to-{name}", "cksum-gso-disable")
            self.vpp.cli("set", "interface", "state", f"host-to-{name}", "up")
            self.vpp.cli("set", "interface", "ip", "address", f"host-to-{name}", f"10.8.{subnet}.1/24")
        return answered

    def resolve_neighbours(self) -> None:
        """Wait until VPP has the hardware address of the client and of each server, and they have its new one."""
        for subnet in range(len(SERVERS) + 1):
            address = f"10.8.{subnet}.2"
            wait_until(partial(self._reaches, address), f"VPP reaches {address}")

    def _reaches(self, address: str) -> bool:
        return "bytes from" in self.vpp.cli("ping", address, "repeat", "1", "interval", "0.1")


class VppBalancer(Daemon):
    """`holdfast balancer` with VPP as its dataplane, and one frontend of all servers."""

    def __init__(self, namespace: Namespace, home: Path, vpp: Vpp, tunnel: str) -> None:
        backends = [f"    {name}: {{address: {server_address(name)}, healthcheck: web}}" for name in SERVERS]
        pool = ", ".join(f"{name}: {{}}" for name in SERVERS)
        sockets = f"api-socket: {vpp.api_socket}, stats-socket: {vpp.stats_socket}"
        config = [
            # Long enough that a busy machine never restarts a worker: that is not what these tests are about.
            "runtime: {heartbeat-after: 120s, stalled-after: 240s, supervisor-silent-after: 300s}",
            "balancer:",
            "  startup-min-delay: 1s",
            "  startup-max-delay: 60s",
            "  sync-interval: 2s",
            f"  dataplane: {{kind: vpp, vpp: {{{sockets}, source-ipv4: {SOURCE}}}}}",
            "  healthchecks: {web: {type: http, port: 80, interval: 200ms, timeout: 5s, fall: 8}}",
            "  backends:",
            *backends,
            "  frontends:",
            "    www:",
            f"      {{address: {VIP}, port: 80, {tunnel},",
            f"       pools: [{{backends: {{{pool}}}}}]}}",
        ]
        super().__init__("balancer", namespace, home, config)

    def __enter__(self) -> VppBalancer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def weights(self) -> Mapping[str, int | None]:
        """Return the programmed weights by server; empty while it does not answer."""
        for frontend in (self.ask("vips", "balancer") or {}).get("frontends", ()):
            return {one["backend"]: one["programmed"] for one in frontend["pools"][0]}
        return {}

    def writes(self) -> int:
        """Return how many changes it has sent to VPP since its start."""
        found = self._metric("holdfast_dataplane_writes_total")
        assert found is not None
        return found

    def packets(self, result: str) -> int:
        """Return how many packets VPP has counted with this result; 0 before it was asked."""
        return self._metric(f'holdfast_vpp_packets_total{{result="{result}"}}') or 0

    def _metric(self, name: str) -> int | None:
        text = str(self.ask("vips", "metrics"))
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return None if found is None else int(float(found[1]))

    def wait_weights(self, **changed: int) -> None:
        """Wait until VPP has these weights, and 100 for every other server, and nothing is left to do."""
        wanted = {**dict.fromkeys(SERVERS, 100), **changed}

        def is_done() -> bool:
            moves = self.ask("vips", "moves")
            return moves is not None and not moves["total"] and self.weights() == wanted

        try:
            wait_until(is_done, f"weights are {wanted}", within=PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{error}, but {self.weights()}: {self.process.output[-3000:]}") from error


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@contextlib.contextmanager
def vpp_site() -> Iterator[VppSite]:
    tool("vpp")
    with network() as net:
        site = VppSite(net)
        site.start_vpp()
        try:
            yield site
        finally:
            site.vpp.process.kill()
            for web in site.webs.values():
                web.kill()
