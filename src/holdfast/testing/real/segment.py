"""Hosts on one network segment, each a namespace, with workloads behind them.

    core (a bridge)
      ├── h1 ── tap1 ── w1
      └── h2 ── tap2 ── w2

Only the wiring: nothing runs in the namespaces. A workload's gateway is the same link-local address on every host, as
with Calico; the agent of a host makes it that gateway.
"""

from __future__ import annotations

from holdfast.testing.real.netns import Namespace, NamespaceNetwork, join

GATEWAY = {4: "169.254.1.1", 6: "fe80::1"}


class HostSegment:
    """The bridge, in the namespace `core`, and the hosts attached to it."""

    def __init__(self, net: NamespaceNetwork, *addresses: str) -> None:
        self.net = net
        self.core = net.namespace("core")
        self.core.batch(["link add segment type bridge"])
        self.core.bring_up("segment", *addresses)
        self.hosts: dict[str, Namespace] = {}

    def attach(self, name: str, *addresses: str) -> Namespace:
        """Add a host; its device on the segment is eth0."""
        host = self.hosts[name] = self.net.namespace(name)
        join(host, "eth0", self.core, f"to-{name}")
        self.core.batch([f"link set to-{name} master segment", f"link set to-{name} up"])
        host.bring_up("eth0", *addresses)
        return host

    def plug(self, host: Namespace, tap: str, workload: Namespace, device: str, *addresses: str) -> None:
        """Connect a workload's namespace to its host; `addresses` are the workload's, with their prefix lengths."""
        join(host, tap, workload, device)
        host.bring_up(tap)
        workload.bring_up(device, *addresses)


def route_by_gateway(workload: Namespace, device: str, *families: int) -> None:
    """Send everything that leaves the workload through the device to the gateway."""
    commands = {
        4: [f"route add {GATEWAY[4]} dev {device}", f"route add default via {GATEWAY[4]}"],
        6: [f"route add default via {GATEWAY[6]} dev {device}"],
    }
    workload.batch([command for family in families for command in commands[family]])
