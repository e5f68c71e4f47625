"""The agent's guard from end to end: who may send what, with workloads in namespaces and nothing set up by hand.

Every datagram that must not arrive is followed by one that must: when the second has arrived, the first is lost. The
same is done without the guard, where the first arrives: the check can fail.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from holdfast.agent.tunnels import tunnel_mac
from holdfast.netlink.netns import inside
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import HOLDFAST
from holdfast.testing.real.hosts import AgentProcess, Fleet, address, gone, underlay, workload
from holdfast.testing.real.netns import Namespace, network
from holdfast.testing.real.processes import Process
from tests.e2e.agent_harness import fleet, wait

PORT, VXLAN, VNI = 5000, 4789, 7500
SPOOFED = {4: "10.28.0.99", 6: "fd00:28::99"}
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_PATIENCE_S = 30


@pytest.fixture(scope="module")
def here() -> Iterator[Fleet]:
    with or_skip(network()) as net, fleet(net, "always", count=2) as made:
        for number in (1, 2):
            wait(partial(is_guarded, made.agents[f"h{number}"], number), f"h{number} guards its workload")
        yield made


def ruleset(agent: AgentProcess) -> str:
    return agent.namespace.run("nft", "list", "ruleset")


def is_guarded(agent: AgentProcess, number: int) -> bool:
    shown = ruleset(agent)
    return "holdfast_guard" in shown and f'"tap{number}"' in shown.partition("set interfaces")[2].partition("set ")[0]


@contextlib.contextmanager
def unguarded(here: Fleet) -> Iterator[None]:
    """Run the agents without the guard for the time of the block."""
    for agent in here.agents.values():
        agent.kill()
        agent.configure(encapsulation="always", guard="false")
        agent.start()
        wait(partial(_has_no_guard, agent), "the table is gone")
    yield
    for number, agent in enumerate(here.agents.values(), 1):
        agent.kill()
        agent.configure(encapsulation="always")
        agent.start()
        wait(partial(is_guarded, agent, number), "the interface is guarded again")


def _has_no_guard(agent: AgentProcess) -> bool:
    return "holdfast_guard" not in ruleset(agent)


class Wire:
    """Datagrams from namespaces to a server on a workload, over the real network between them."""

    def __init__(self, stack: contextlib.ExitStack, server: Namespace, family: int) -> None:
        self.family = family
        self._server = stack.enter_context(self._socket(server, ("", PORT)))
        self._server.settimeout(_PATIENCE_S)
        self._stack = stack

    def _socket(self, namespace: Namespace, bound: tuple[str, int]) -> socket.socket:
        def made() -> socket.socket:
            found = socket.socket(_FAMILIES[self.family], socket.SOCK_DGRAM)
            try:
                found.bind(bound)
            except OSError:
                found.close()
                raise
            return found

        return inside(namespace.system_name, made)

    def send(self, client: Namespace, source: str, to: str, data: bytes, port: int = PORT) -> None:
        with self._socket(client, (source, 0)) as sending:
            sending.sendto(data, (to, port))

    def arrived(self, last: bytes) -> Sequence[bytes]:
        """Wait for the datagram `last`; return everything that arrived until then."""
        found: list[bytes] = []
        while not found or found[-1] != last:
            found.append(self._server.recv(2_048))
        return found


@pytest.fixture(params=[4, 6])
def wire(here: Fleet, request: pytest.FixtureRequest) -> Iterator[Wire]:
    with contextlib.ExitStack() as stack:
        yield Wire(stack, here.workloads[2], request.param)


def has_address(namespace: Namespace, one: str) -> None:
    # Even on lo, the kernel may still look for duplicates of an IPv6 address when it is to be used.
    at_once = ["nodad"] if ":" in one else []
    with contextlib.suppress(RuntimeError):  # it is there
        namespace.run("ip", "address", "add", one, "dev", "lo", *at_once)


def spoof(here: Fleet, wire: Wire) -> Sequence[bytes]:
    """Have w1 send from an address that is not its own, then from its own."""
    one, family = here.workloads[1], wire.family
    has_address(one, SPOOFED[family])
    wire.send(one, SPOOFED[family], address(2, family), b"spoofed")
    wire.send(one, address(1, family), address(2, family), b"honest")
    return wire.arrived(b"honest")


def vxlan(family: int, host: str, data: bytes, vni: int = VNI) -> bytes:
    """A packet for the server on w2 as it is inside the tunnel, from a workload that does not exist."""
    udp = struct.pack(">HHHH", 1, PORT, 8 + len(data), 0) + data
    sender, to = (socket.inet_pton(_FAMILIES[family], one) for one in (SPOOFED[family], address(2, family)))
    if family == 4:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + sender + to
        head = head[:10] + struct.pack(">H", _checksum(head)) + head[12:]
    else:
        head = struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + sender + to
        pseudo = sender + to + struct.pack(">IHBB", len(udp), 0, 0, 17)
        udp = udp[:6] + struct.pack(">H", _checksum(pseudo + udp) or 0xFFFF) + udp[8:]
    mac = bytes.fromhex(tunnel_mac(host, family).replace(":", ""))
    ethernet = mac + b"\2\0\0\0\0\1" + struct.pack(">H", {4: 0x0800, 6: 0x86DD}[family])
    return struct.pack(">II", 0x0800_0000, vni << 8) + ethernet + head + udp


def _checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def intrude(here: Fleet, wire: Wire) -> Sequence[bytes]:
    """Have a machine on the segment that is no host of the fleet send into the tunnel of h2."""
    core, family = here.segment.core, wire.family
    stranger = {4: "10.0.0.254", 6: "fd00::254"}[family]
    wire.send(core, stranger, underlay(2, family), vxlan(family, "h2", b"strange"), VXLAN)
    wire.send(here.workloads[1], address(1, family), address(2, family), b"honest")
    return wire.arrived(b"honest")


def encapsulate(here: Fleet, wire: Wire) -> Sequence[bytes]:
    """Have w1, behind a host that masquerades, send into the tunnel of h2 itself: it comes from h1's own address."""
    one, family = here.workloads[1], wire.family
    wire.send(one, address(1, family), underlay(2, family), vxlan(family, "h2", b"wrapped"), VXLAN)
    wire.send(one, address(1, family), address(2, family), b"honest")
    return wire.arrived(b"honest")


@contextlib.contextmanager
def masquerading(agent: AgentProcess) -> Iterator[None]:
    agent.namespace.run(
        "nft",
        "add table inet nat; add chain inet nat post { type nat hook postrouting priority 100; };"
        " add rule inet nat post oifname eth0 masquerade",
    )
    try:
        yield
    finally:
        agent.namespace.run("nft", "delete table inet nat")


def test_a_workload_with_a_wrong_source_sends_nothing(here: Fleet, wire: Wire) -> None:
    assert spoof(here, wire) == [b"honest"]


def test_a_strangers_vxlan_packet_enters_nowhere(here: Fleet, wire: Wire) -> None:
    assert intrude(here, wire) == [b"honest"]


def test_a_workload_does_not_enter_the_tunnel_by_itself(here: Fleet, wire: Wire) -> None:
    with masquerading(here.agents["h1"]):
        assert encapsulate(here, wire) == [b"honest"]


def test_without_the_guard_all_of_that_arrives(here: Fleet) -> None:
    with unguarded(here), masquerading(here.agents["h1"]):
        for family in (4, 6):
            with contextlib.ExitStack() as stack:
                wire = Wire(stack, here.workloads[2], family)
                assert spoof(here, wire) == [b"spoofed", b"honest"]
                assert b"strange" in intrude(here, wire)
                assert b"wrapped" in encapsulate(here, wire)


def test_a_killed_agent_comes_back_and_changes_nothing(here: Fleet) -> None:
    agent = here.agents["h1"]
    log = here.home / "h1-guard.monitor"
    watch = "nft monitor & exec ip monitor address netconf route nexthop rule"
    monitor = Process(agent.namespace.command("sh", "-c", watch), log=log)
    monitor.start()
    try:
        wait(lambda: hears(agent, monitor), "both monitors hear")
        before, heard = ruleset(agent), monitor.output
        agent.kill()
        agent.start()
        wait(agent.is_at_rest, "the agent has compared everything")
        agent.namespace.run("nft", "add table inet last")
        wait(lambda: "inet last" in monitor.output, "all until here was heard")
        changed = monitor.output[len(heard) :].splitlines()
        assert [one for one in changed if "last" not in one and not one.startswith("# new generation")] == []
        agent.namespace.run("nft", "delete table inet last")
        assert ruleset(agent) == before
    finally:
        monitor.kill()


def hears(agent: AgentProcess, monitor: Process) -> bool:
    for do in ("add", "delete"):
        agent.namespace.run("nft", do, "table", "inet", "first")
        agent.namespace.run("ip", "route", do, "blackhole", "203.0.113.1/32", "table", "99")
    return "inet first" in monitor.output and "203.0.113.1" in monitor.output


@pytest.mark.parametrize(
    "words",
    [
        "nft flush ruleset",
        "nft delete element inet holdfast_guard sources4 { tap1 . 10.28.0.1 }",
        "ip address del fe80::1/64 dev tap1",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.ip_forward=0",
    ],
)
def test_what_another_program_undoes_is_repaired(here: Fleet, words: str) -> None:
    agent, one = here.agents["h1"], here.workloads[1]
    agent.namespace.run(*words.split())
    for family in (4, 6):
        wait(partial(here.reaches, 1, 2, family), f"w1 reaches w2 by IPv{family} again")
    wait(partial(is_guarded, agent, 1), "the interface is guarded again")
    with contextlib.ExitStack() as stack:
        wire = Wire(stack, here.workloads[2], 4)
        has_address(one, SPOOFED[4])
        wait(lambda: spoof(here, wire) == [b"honest"], "a wrong source sends nothing again")


def test_what_is_deleted_is_cleaned_up(here: Fleet) -> None:
    agent, namespace = here.agents["h1"], here.agents["h1"].namespace
    namespace.run("ip", "link", "add", "tap9", "type", "veth", "peer", "name", "tap9-w")
    namespace.batch(["link set tap9-w up", "link set tap9 up"])
    other = workload("h1", 9)
    here.change(other)
    wait(partial(is_guarded, agent, 9), "h1 guards its second workload")
    wait(lambda: "fe80::1/64" in namespace.run("ip", "address", "show", "dev", "tap9"), "tap9 has the gateway")
    here.change(gone(other))
    wait(lambda: "tap9" not in ruleset(agent), "nothing of it is guarded")
    wait(lambda: "fe80::1/64" not in namespace.run("ip", "address", "show", "dev", "tap9"), "its gateway is gone")
    namespace.run("ip", "link", "del", "tap9")


def test_an_endpoint_is_explained_with_its_interface_and_its_guard(here: Fleet) -> None:
    agent = here.agents["h1"]
    words = *HOLDFAST, "explain", "endpoint", "h1-holdfast-w1-eth0"
    said = agent.namespace.run("env", f"HOLDFAST_CONFIG={agent.file}", *words)
    setup = [f"interface tap1 for IPv{family}" for family in (4, 6)]
    for one in (*setup, "source 10.28.0.1/32 on tap1", "guarded interface tap1"):
        assert f"{one}: wanted by" in said
