"""A network namespace that is deleted and created again under its name is another one, and the agent notices."""

from __future__ import annotations

import asyncio
import socket

from holdfast.agent.namespace_watch import NamespaceWatch
from holdfast.netlink.netns import inside
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.processes import run, tool


def ip_netns(do: str, namespace: Namespace) -> None:
    run([tool("ip"), "netns", do, namespace.system_name])


def test_a_namespace_that_was_created_again_ends_the_watch_and_one_that_lost_its_name_does_not(
    namespaces: NamespaceNetwork,
) -> None:
    there = namespaces.namespace("there")
    watch = NamespaceWatch(there.system_name)

    async def scene() -> None:
        watching = asyncio.create_task(watch.run())
        with inside(there.system_name, socket.socket):  # as the dataplane does, it keeps the old one alive
            assert not watch.is_another()
            ip_netns("del", there)
            assert not watch.is_another()
            ip_netns("add", there)
            assert watch.is_another()
            async with asyncio.timeout(30):
                await watching
        assert not NamespaceWatch(there.system_name).is_another()

    asyncio.run(scene())


def test_an_agent_in_its_own_namespace_has_nothing_to_watch() -> None:
    assert not NamespaceWatch(None).is_another()
