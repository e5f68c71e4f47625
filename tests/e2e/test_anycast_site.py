"""The site that the balancer's tests stand on: every server is reached, by each balancer, in both families."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from holdfast.netlink.netns import inside
from holdfast.testing.real.anycast import SERVERS, AnycastSite, address
from holdfast.testing.real.flows import answered, connected
from holdfast.testing.real.netns import NamespaceNetwork
from holdfast.testing.real.nginx import PORT, Nginx
from holdfast.testing.real.processes import Unavailable


async def names(hosts: Sequence[str]) -> Sequence[str]:
    """Return the name that each of these hosts answers with."""
    streams = [await connected(host, PORT) for host in hosts]
    try:
        return [await answered(stream) for stream in streams]
    finally:
        for _, writer in streams:
            writer.close()


def test_every_server_answers_the_client_through_each_balancer_in_both_families(namespaces: NamespaceNetwork) -> None:
    site = AnycastSite(namespaces, balancers=2)
    try:
        servers = [Nginx(one, namespaces.home) for one in site.servers.values()]
    except Unavailable as missing:
        pytest.skip(str(missing))
    for server in servers:
        server.start()
    for balancer in (1, 2):
        site.lead_through(balancer)
        for family in (4, 6):
            asked = names([address(name, family) for name in SERVERS])
            assert inside(site.client.system_name, partial(asyncio.run, asked)) == list(SERVERS)
    for server in servers:
        server.kill()
