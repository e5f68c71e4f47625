"""Members and clients on one simulated network, for a virtual loop's `create_connection`.

    network = SimNetwork(FakeStore(), random.Random(7), wall=…)
    loop.network = network
    store = EtcdStore(network.connection(link))     # the shipped client, on bytes
    network.members[0].stop(); network.cluster.restore(revision); link.cut()

A client's URLs name the member and the client (`http://m1.client-3:2379`): so each client has a link of its own.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from holdfast.model.base.time import Duration, seconds
from holdfast.store.transport.gateway import Connection
from holdfast.testing.store.fake import FakeStore
from holdfast.testing.store.gateway.link import SimLink
from holdfast.testing.store.gateway.member import Accounts, SimMember
from holdfast.testing.store.gateway.tcp import Connected, Factory, SimTransport
from holdfast.testing.store.link import world_time

MEMBERS = 3
SYN_RETRIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Seconds between the tries of TCP to connect."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def world_wall() -> datetime:
    """Wall clock of the members."""
    return EPOCH + timedelta(seconds=world_time())


class SimNetwork:
    """The members of one etcd cluster, and the links of all clients to them."""

    def __init__(
        self,
        cluster: FakeStore,
        rng: random.Random,
        *,
        members: int = MEMBERS,
        wall: Callable[[], datetime] = world_wall,
    ) -> None:
        self.cluster = cluster
        self.accounts = Accounts({}, set())
        self._rng = rng
        self.members: Sequence[SimMember] = [
            SimMember(f"m{number}", number, cluster, self.accounts, rng, wall) for number in range(1, members + 1)
        ]
        self.links: dict[str, SimLink] = {}
        cluster.replaced.append(self.reset)

    def link(self, name: str, latency: Callable[[], float] = lambda: 0.0) -> SimLink:
        """Make the link of a further client."""
        link = SimLink(name, latency, self._rng)
        link.healed.append(self._wake)
        self.links[f"client-{len(self.links) + 1}"] = link
        return link

    def connection(
        self, link: SimLink, *, deadline: Duration = seconds(5), user: str = "", password: str = ""
    ) -> Connection:
        """Return the configuration of the client behind `link`."""
        (host,) = [name for name, each in self.links.items() if each is link]
        urls = [f"http://{member.name}.{host}:2379" for member in self.members]
        return Connection(urls, host=host, deadline=deadline, user=user, password=lambda: password)

    def reset(self) -> None:
        """Restart every member: all connections are reset."""
        for member in self.members:
            member.reset_connections()
            member.rejoin()

    async def connect(self, factory: Factory, host: str) -> Connected:
        """Connect to a member as `loop.create_connection` does. Raises `OSError`."""
        name, _, client = host.partition(".")
        link = self.links.get(client)
        if link is None:
            raise RuntimeError(f"{host} is no member of the simulated network: there are no real sockets here")
        member = next(each for each in self.members if each.name == name)
        await asyncio.sleep(2 * link.delay())
        for wait in SYN_RETRIES:
            if link.up:
                break
            await asyncio.sleep(wait)
        else:
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
        if link.refuses or not member.up:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        protocol = factory()
        transport = SimTransport(link, protocol, self._rng)
        transport.server = member.serve(transport, link)
        link.opened(transport)
        protocol.connection_made(transport)
        return transport, protocol

    def _wake(self) -> None:
        for member in self.members:
            member.wake()
