"""Real traffic through the kernel: servers that name themselves, clients with lasting connections, one balancer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from typing import TypeVar

from holdfast.balancer.dataplane.api import Client
from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.dataplane.nftables.flow_hash import bucket
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import Value, Vip, VipKey, VipSettings, backend
from holdfast.config.sections.frontend import DEFAULT_TABLE_SIZE
from holdfast.netlink.netns import inside
from holdfast.reconcile import Change
from holdfast.testing.real.anycast import SERVERS, AnycastSite, address
from holdfast.testing.real.netns import Namespace, network
from holdfast.testing.real.processes import tool, wait_until
from tests.balancer.dataplane.conformance import change, made

T = TypeVar("T")
PORT = 8080
SIZE = DEFAULT_TABLE_SIZE
TABLE = "holdfast"
V4 = Vip.of("192.0.2.1", "tcp", 80)
V6 = Vip.of("2001:db8::1", "tcp", 80)
WEB4 = {name: backend(address(name, 4), PORT) for name in SERVERS}
WEB6 = {name: backend(address(name, 6), PORT) for name in SERVERS}
_PATIENCE = 30.0
_RESET = struct.pack("ii", 1, 0)


class Servers:
    """In each of these namespaces, on TCP and UDP: whatever comes is answered with the name and who asked."""

    def __init__(self, namespaces: dict[str, Namespace]) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        for name, namespace in namespaces.items():
            for port in (PORT, PORT + 1):
                self._listen(name, inside(namespace.system_name, partial(_stream, port)), self._accept)
                for family in (4, 6):  # an answer must come from the address that was asked
                    own = address(name, family), port
                    self._listen(name, inside(namespace.system_name, partial(_datagrams, own)), _echo)
        self._stopping, wake = socket.socketpair()
        self._sockets += [self._stopping, wake]
        self._selector.register(wake, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._stopping.send(b"x")
        self._thread.join()
        for one in self._sockets:
            one.close()
        self._selector.close()

    def _listen(self, name: str, made: socket.socket, what: Callable[[str, socket.socket], None]) -> None:
        self._sockets.append(made)
        self._selector.register(made, selectors.EVENT_READ, (name, what))

    def _serve(self) -> None:
        while True:
            for ready, _ in self._selector.select():
                if ready.data is None:
                    return
                name, what = ready.data
                what(name, ready.fileobj)

    def _accept(self, name: str, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        self._listen(name, connection, self._answer)

    def _answer(self, name: str, connection: socket.socket) -> None:
        try:
            if connection.recv(64):
                connection.send(_word(name, connection.getpeername()[0]))
                return
        except OSError:
            pass  # the flow was ended: there is nobody to answer
        self._selector.unregister(connection)
        self._sockets.remove(connection)
        connection.close()


def _stream(port: int) -> socket.socket:
    return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)


def _datagrams(own: tuple[str, int]) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in own[0] else socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(own)
    return made


def _echo(name: str, sock: socket.socket) -> None:
    _, peer = sock.recvfrom(64)
    sock.sendto(_word(name, peer[0]), peer)


def _word(name: str, peer: str) -> bytes:
    return f"{name} {peer.removeprefix('::ffff:')}\n".encode()


class Flow:
    """One connection of the client."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.source: tuple[str, int] = sock.getsockname()[:2]

    def asked(self) -> str:
        """What the server answers: its name, and whom it sees. Raises OSError when the flow is dead."""
        answer = self._answer() if self.socket.type is socket.SOCK_STREAM else self._answer_to_one_of_many()
        if not answer:
            raise ConnectionResetError("the server has ended it")
        return answer.decode().strip()

    def _answer(self) -> bytes:
        self.socket.send(b"?")
        return self.socket.recv(64)

    def _answer_to_one_of_many(self) -> bytes:
        """Datagrams may get lost, and so may the word that nobody takes them: a busy kernel leaves it out."""
        self.socket.settimeout(1.0)
        for _ in range(int(_PATIENCE)):
            with contextlib.suppress(TimeoutError):
                return self._answer()
        raise TimeoutError("no answer, and no refusal")

    def server(self) -> str:
        return self.asked().partition(" ")[0]

    def lives(self) -> bool:
        try:
            return bool(self.asked())
        except OSError:
            return False


class Ground:
    """The site, its servers, and one balancer on the kernel of `lb-1`."""

    def __init__(self, site: AnycastSite, shape: TableShape) -> None:
        self.site = site
        self.namespace = site.balancers[0]
        self.shape = shape
        self.plane = NftablesDataplane(shape)
        self._flows: list[Flow] = []
        self._knocking: list[socket.socket] = []

    def restart(self) -> None:
        """Another process would know no more than this one does now."""
        self.plane.close()
        self.plane = NftablesDataplane(self.shape)

    def do(self, work: Callable[[NftablesDataplane], Awaitable[T]]) -> T:
        """Has the dataplane do it, where the balancer is."""

        async def run() -> T:
            return await work(self.plane)

        return inside(self.namespace.system_name, lambda: asyncio.run(run()))

    def make(self, *changes: Change[VipKey, Value]) -> None:
        self.do(lambda plane: made(plane, *changes))

    def read(self) -> dict[VipKey, Value]:
        return dict(self.do(lambda plane: plane.read()))

    def nft(self, *words: str) -> str:
        return self.namespace.run("nft", *words)

    def connect(self, vip: Vip = V4, count: int = 1, *, of: Namespace | None = None, port: int = 0) -> list[Flow]:
        """New connections of the client, or of whoever is given."""
        opened: list[Flow] = []

        def open_all() -> None:
            for _ in range(count):
                opened.append(Flow(_opened(vip, port or vip.port)))
                self._flows.append(opened[-1])

        inside((of or self.site.client).system_name, open_all)
        return opened

    def knock(self, vip: Vip, count: int) -> None:
        """The client begins this many connections, and does not wait for any answer."""

        def begin() -> None:
            for _ in range(count):
                made = socket.socket(socket.AF_INET if vip.family == 4 else socket.AF_INET6)
                self._knocking.append(made)
                made.setblocking(False)
                made.connect_ex((_host(vip), vip.port))

        inside(self.site.client.system_name, begin)

    @contextlib.contextmanager
    def having(self, own: str) -> Iterator[None]:
        """The balancer's machine has this address for its own, as when it is announced."""
        six = ":" in own
        # Without nodad an IPv6 address is tentative for a moment, also on the loopback device.
        self.namespace.run("ip", "address", "add", own, "dev", "lo", *["nodad"] * six)
        try:
            # The kernel makes its local route a moment later; until then it leads elsewhere, and a flow that begins
            # then stays as it began.
            shown = ("ip", "-6" if six else "-4", "route", "show", "table", "local", own)
            wait_until(lambda: own in self.namespace.run(*shown), f"{own} is local")
            yield
        finally:
            self.namespace.run("ip", "address", "delete", own, "dev", "lo")

    def close(self) -> None:
        for one in (*(flow.socket for flow in self._flows), *self._knocking):
            # With a reset: what nobody has acknowledged would be sent again for minutes, and when its VIP is there once
            # more, in a later test, it would be a flow.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            one.close()
        self.make(*(change(VipKey(vip), None) for vip in {key.vip for key in self.read()}))  # ends its flows, too
        if f"table inet {self.shape.table}" in self.nft("list", "tables"):
            self.nft("delete", "table", "inet", self.shape.table)
        inside(self.namespace.system_name, self._end_flows)
        self.plane.close()

    def _end_flows(self) -> None:
        """Also those to a VIP that nobody removes because the test has deleted its table: in the next test they would
        have the same marks."""
        kernel = NftConnection(self.shape.table)
        try:
            for mark in kernel.count_flows():
                kernel.end_flows(mark)
        finally:
            kernel.close()


def _opened(vip: Vip, port: int) -> socket.socket:
    family = socket.AF_INET if vip.family == 4 else socket.AF_INET6
    host = _host(vip)
    if vip.protocol == 17:
        made = socket.socket(family, socket.SOCK_DGRAM)
        made.settimeout(_PATIENCE)
        made.connect((host, port))
        return made
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return socket.create_connection((host, port), timeout=_PATIENCE)
        except OSError as error:
            # A busy machine gives up on resolving a neighbour; it is asked again with the next packet.
            if error.errno != errno.EHOSTUNREACH or time.monotonic() > until:
                raise


def _host(vip: Vip) -> str:
    return str(vip).rpartition(":")[0].strip("[]")


def is_pinged(host: str, where: Namespace) -> bool:
    """Whether an echo request from there is answered."""
    six = ":" in host
    family, protocol, kind, answer = (
        (socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129) if six else (socket.AF_INET, socket.IPPROTO_ICMP, 8, 0)
    )
    with inside(where.system_name, lambda: socket.socket(family, socket.SOCK_RAW, protocol)) as raw:
        raw.settimeout(_PATIENCE)
        body = bytes([kind, 0]) + (0 if six else 0xFFFF - (kind << 8) - 1).to_bytes(2, "big") + b"\0\1\0\0"
        raw.sendto(body, (host, 0))
        while True:
            came = raw.recv(128)
            if came[0 if six else 20] == answer:
                return True


def by_server(flows: Iterable[Flow]) -> dict[str, list[Flow]]:
    found: dict[str, list[Flow]] = {}
    for flow in flows:
        found.setdefault(flow.server(), []).append(flow)
    return found


def spread(flows: Sequence[Flow]) -> Counter[str]:
    return Counter(flow.server() for flow in flows)


def predicted(flow: Flow, weights: Mapping[BackendId, int], *, sticky: bool = False, size: int = SIZE) -> str:
    """The server that a flow must get, by the hash of where it comes from."""
    host, port = flow.source
    found = ip_address(host)
    serving, table = maglev.base_table(weights, size)
    return named(serving[table[bucket(Client(found.version, int(found), port), VipSettings(sticky, size))]])


def is_served(ground: Ground, vip: Vip = V4, size: int = SIZE) -> bool:
    """Whether every new flow is answered, by the server that its hash says, where all three serve alike."""
    flows = ground.connect(vip, 20)
    weights = dict.fromkeys((WEB4 if vip.family == 4 else WEB6).values(), 100)
    return [flow.server() for flow in flows] == [predicted(flow, weights, size=size) for flow in flows]


@contextlib.contextmanager
def stage() -> Iterator[tuple[AnycastSite, Servers]]:
    """A site whose servers answer, on a machine that has the tool."""
    tool("nft")
    with network() as net:
        site = AnycastSite(net)
        servers = Servers(site.servers)
        try:
            yield site, servers
        finally:
            servers.close()


def named(identity: BackendId) -> str:
    """The server behind a backend."""
    return next(name for name in SERVERS if identity in (WEB4[name], WEB6[name]))
