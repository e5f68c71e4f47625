"""Linux as a dataplane: reads whole, applies packed, and hears what others do to what is ours.

A picture of our objects is kept: taken whole from the kernel, carried on by what the kernel acknowledged to us, and
thrown away when something happened that it cannot follow. A question about a few objects is answered from it; a
question about all of them always reads the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from holdfast.agent.claims import ClaimKey, LocalRoute, Mode, NexthopEntry, Shape
from holdfast.agent.dataplane.api import ClaimChange, HostDataplaneInfo, ReadInterrupted
from holdfast.agent.dataplane.linux import snapshot as picture
from holdfast.agent.dataplane.linux.apply import carry_out
from holdfast.agent.dataplane.linux.context import LinuxContext
from holdfast.agent.dataplane.linux.devices import Devices, Macs
from holdfast.agent.dataplane.linux.event_handler import EventHandler
from holdfast.agent.dataplane.linux.event_socket import EventSocket, Overrun
from holdfast.agent.dataplane.linux.exclusive import NamespaceLock, missing_capability
from holdfast.agent.dataplane.linux.naming import FAMILIES, own
from holdfast.agent.dataplane.linux.routes import straight_device
from holdfast.agent.dataplane.linux.snapshot import KernelSnapshot
from holdfast.agent.tunnel_mac import tunnel_mac
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import socket as netlink
from holdfast.reconcile import Away
from holdfast.runtime.cooperative import Steps, at_once, in_turns

_AT_ONCE = 1_000  # changes between two moments in which others may run
_HEARD_AT_ONCE = 200  # messages, likewise
_WHAT = "the kernel"
_IPV6 = Path("/proc/thread-self/net/if_inet6")  # not there in a kernel that was told to do without


class LinuxDataplane:
    """The kernel of the network namespace in which this is made. Raises `Away` where it cannot be talked to."""

    name = "linux"

    def __init__(self, settings: LinuxSettings | None = None, macs: Macs | None = None, *, alone: bool = False) -> None:
        """`macs` are those by which other hosts know our ends of the tunnel; by default those of this machine's name.

        `alone`: as the one agent of this network namespace, which it is until `close`; others only look.
        """
        self._settings = settings or LinuxSettings()
        self._held = NamespaceLock() if alone else None
        self._families = FAMILIES if _IPV6.exists() else (4,)
        with _trouble():
            kernel = netlink.Netlink(socket.NETLINK_ROUTE)
            self._ear = EventSocket(kernel, self._settings.protocol)
            devices = Devices(kernel, self._settings, macs or partial(tunnel_mac, socket.gethostname()))
        self._ground = LinuxContext(kernel, self._settings, devices, KernelSnapshot(self._settings.first_nexthop))
        self._hearing = EventHandler(self._ground)
        self._hearing.must_read = True
        self._disturbed: set[ClaimKey] | None = set()
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()

    def close(self) -> None:
        self._ear.close()
        self._ground.kernel.close()
        if self._held is not None:
            self._held.close()

    def ready(self) -> str | None:
        return missing_capability()

    def describe(self) -> HostDataplaneInfo:
        return HostDataplaneInfo(self.name, own(self._settings, self._families))

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        async with self._lock:
            await self._be_current(afresh=keys is None)
            shapes = self._ground.picture.shapes
            return dict(shapes) if keys is None else {key: shapes[key] for key in keys if key in shapes}

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        answers: list[str | None] = []
        async with self._lock:
            for start in range(0, len(changes), _AT_ONCE):
                await self._be_current()
                try:
                    with _trouble():
                        answers += carry_out(self._ground, changes[start : start + _AT_ONCE])
                except Away:
                    self._hearing.must_read = True  # how far it came is not known
                    raise
        if any(answers):
            self._hearing.must_read = True  # a refusal says that the kernel is not as we thought
        return answers

    def obstacle(self, key: ClaimKey, shape: Shape) -> str | None:
        found = self._obstacle(key, shape)
        if found is not None:
            self._hearing.waiting.add(key)
        return found

    async def disturbed(self) -> Collection[ClaimKey] | None:
        while True:
            async with self._lock:
                await in_turns(self._listening())
                keys, self._disturbed = self._disturbed, set()
            if keys is None or keys:
                return keys
            await self._heard()

    def is_disturbed(self) -> bool:
        """Whether `disturbed` would return at once."""
        at_once(self._listening())
        return self._disturbed is None or bool(self._disturbed)

    def _obstacle(self, key: ClaimKey, shape: Shape) -> str | None:
        if isinstance(shape, LocalRoute):
            return self._ground.devices.obstacle_at(shape.interface)
        if isinstance(shape, NexthopEntry) and shape.mode is Mode.DIRECT:
            device = straight_device(self._ground, key)
            return device if isinstance(device, str) else None
        return None

    async def _be_current(self, *, afresh: bool = False) -> None:
        """Makes the picture one of the kernel as it is."""
        await in_turns(self._listening())
        await asyncio.sleep(0)
        # A tunnel may be none of ours since now without any change in the kernel: the others know us by another MAC.
        has_other_tunnels = self._ground.devices.tunnel_numbers() != self._ground.picture.tunnels
        if not (self._hearing.must_read or has_other_tunnels or afresh):
            return
        # What is heard from here on happened after the reading began, and is folded into what it finds.
        with _trouble():
            ground = self._ground
            taking = picture.take(ground.kernel, self._settings, ground.devices, ground.picture)
            ground.picture = await in_turns(taking)
        self._hearing.must_read = False
        await in_turns(self._listening())

    def _listening(self) -> Steps[None]:
        """Takes in what was heard."""
        with _trouble():
            try:
                for at, message in enumerate(self._ear.messages(), 1):
                    self._hearing.take_in(message)
                    if at % _HEARD_AT_ONCE == 0:
                        yield
            except Overrun:
                self._hearing.is_lost = True
            except GeneratorExit:
                self._hearing.is_lost = True  # nobody hears the rest of what came together with the last message
                raise
            told = self._hearing.tell()
        self._disturbed = None if told is None or self._disturbed is None else self._disturbed | told
        if self._disturbed is None or self._disturbed:
            self._news.set()  # whoever waits for it must hear of it, also when somebody else has listened

    async def _heard(self) -> None:
        """Returns when there is something to listen to."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ear.fileno(), self._news.set)
        try:
            await self._news.wait()
        finally:
            self._news.clear()
            loop.remove_reader(self._ear.fileno())


@contextlib.contextmanager
def _trouble() -> Iterator[None]:
    """The kernel's side of the story: an interrupted dump is one thing, a kernel that cannot be talked to another."""
    try:
        yield
    except netlink.DumpInterrupted as interrupted:
        raise ReadInterrupted(_WHAT, str(interrupted)) from interrupted
    except OSError as error:
        raise Away(_WHAT, error.strerror or str(error)) from error
