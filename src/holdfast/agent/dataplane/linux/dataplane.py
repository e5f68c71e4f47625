"""Dataplane on a Linux kernel: reads everything at once, applies packed batches, and watches what others change.

It keeps a snapshot of our objects: read whole from the kernel, updated by what the kernel acknowledged to us, and
dropped when something happened that it cannot follow. A read of a few objects uses the snapshot; a read of all of them
always reads the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from holdfast.agent.claims import ClaimKey, FdbEntry, LocalRoute, Mode, NeighbourEntry, NexthopEntry, Shape
from holdfast.agent.dataplane.api import ClaimChange, HostDataplaneInfo, ReadInterrupted
from holdfast.agent.dataplane.linux.apply import apply
from holdfast.agent.dataplane.linux.context import LinuxContext
from holdfast.agent.dataplane.linux.devices import FAMILIES, Devices, MacLookup
from holdfast.agent.dataplane.linux.event_handler import EventHandler
from holdfast.agent.dataplane.linux.event_socket import EventSocket, Overrun
from holdfast.agent.dataplane.linux.exclusive import NamespaceLock, missing_capability
from holdfast.agent.dataplane.linux.routes import direct_device, own_rules
from holdfast.agent.dataplane.linux.snapshot import KernelSnapshot, retake, take
from holdfast.agent.tunnel_mac import tunnel_mac
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import socket as netlink
from holdfast.reconcile import Away
from holdfast.runtime.cooperative import Steps, in_turns

_AT_ONCE = 1_000  # changes between two yields to other tasks
_EVENTS_AT_ONCE = 200  # messages, likewise
_WHAT = "the kernel"
_IPV6 = Path("/proc/thread-self/net/if_inet6")  # absent in a kernel with IPv6 disabled


class LinuxDataplane:
    """Kernel of the network namespace in which this is created. Raises `Away` where it is unreachable."""

    name = "linux"

    def __init__(
        self, settings: LinuxSettings | None = None, macs: MacLookup | None = None, *, exclusive: bool = False
    ) -> None:
        """`macs` gives the MACs by which other hosts know our VXLAN devices; by default those derived from the
        machine's name.

        `exclusive` makes it the only agent of this network namespace until `close`; without it, use it for reading
        only.
        """
        self._settings = settings or LinuxSettings()
        self._namespace_lock = NamespaceLock() if exclusive else None
        self._families = FAMILIES if _IPV6.exists() else (4,)
        with _kernel_errors():
            kernel = netlink.Netlink(socket.NETLINK_ROUTE)
            self._event_socket = EventSocket(kernel, self._settings.protocol)
            devices = Devices(kernel, self._settings, macs or partial(tunnel_mac, socket.gethostname()))
        self._context = LinuxContext(kernel, self._settings, devices, KernelSnapshot(self._settings.first_nexthop))
        self._events = EventHandler(self._context)
        self._disturbed: set[ClaimKey] | None = set()
        self._lock = asyncio.Lock()
        self._has_events = asyncio.Event()

    def close(self) -> None:
        self._event_socket.close()
        self._context.kernel.close()
        if self._namespace_lock is not None:
            self._namespace_lock.close()

    def ready(self) -> str | None:
        return missing_capability()

    def describe(self) -> HostDataplaneInfo:
        return HostDataplaneInfo(self.name, own_rules(self._settings, self._families))

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        async with self._lock:
            await self._refresh(force=keys is None)
            shapes = self._context.snapshot.shapes
            return dict(shapes) if keys is None else {key: shapes[key] for key in keys if key in shapes}

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        answers: list[str | None] = []
        async with self._lock:
            for start in range(0, len(changes), _AT_ONCE):
                await self._refresh()
                try:
                    with _kernel_errors():
                        answers += apply(self._context, changes[start : start + _AT_ONCE])
                except Away:
                    self._events.invalidate()  # it is not known how far it got
                    raise
        refused = {change.key for change, answer in zip(changes, answers, strict=True) if answer is not None}
        self._events.refused.difference_update(change.key for change in changes)
        self._events.refuse(refused)
        return answers

    def blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        found = self._blocked_by(key, shape)
        if found is not None:
            self._events.waiting.add(key)
        return found

    async def disturbed(self) -> Collection[ClaimKey] | None:
        while True:
            async with self._lock:
                await in_turns(self._read_events())
                keys, self._disturbed = self._disturbed, set()
            if keys is None or keys:
                return keys
            await self._event_arrived()

    def _blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        if isinstance(shape, LocalRoute):
            return self._context.devices.blocked_by(shape.interface)
        if isinstance(shape, NexthopEntry) and shape.mode is Mode.DIRECT:
            device = direct_device(self._context, key)
            return device if isinstance(device, str) else None
        if isinstance(shape, FdbEntry | NeighbourEntry | NexthopEntry):
            return self._context.devices.tunnel_blocked_by(key.family)
        return None

    async def _refresh(self, *, force: bool = False) -> None:
        """Bring the snapshot up to date with the kernel."""
        await in_turns(self._read_events())
        await asyncio.sleep(0)
        # A tunnel may stop being ours without any change in the kernel: other hosts know us by another MAC now.
        has_other_tunnels = self._context.devices.tunnel_numbers() != self._context.snapshot.tunnels
        is_stale = self._events.is_stale or has_other_tunnels or force
        if not (is_stale or self._events.stale):
            return
        # Events from here on happened after the read began, and are applied to its result.
        context = self._context
        with _kernel_errors():
            if is_stale:
                taking = take(context.kernel, self._settings, context.devices, context.snapshot)
                context.snapshot = await in_turns(taking)
            else:
                stale = frozenset(self._events.stale)
                await in_turns(retake(context.kernel, self._settings, context.devices, stale, context.snapshot))
        self._events.snapshot_taken()
        await in_turns(self._read_events())

    def _read_events(self) -> Steps[None]:
        """Apply the events that have arrived."""
        with _kernel_errors():
            try:
                for at, message in enumerate(self._event_socket.messages(), 1):
                    self._events.handle(message)
                    if at % _EVENTS_AT_ONCE == 0:
                        yield
            except Overrun:
                self._events.events_lost()
            except GeneratorExit:
                self._events.events_lost()  # the rest of the last datagram is lost
                raise
            changed = self._events.take_changed()
        self._disturbed = None if changed is None or self._disturbed is None else self._disturbed | changed
        if self._disturbed is None or self._disturbed:
            self._has_events.set()  # `disturbed` must wake up even if another call read the events

    async def _event_arrived(self) -> None:
        """Wait for an event."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._event_socket.fileno(), self._has_events.set)
        try:
            await self._has_events.wait()
        finally:
            self._has_events.clear()
            loop.remove_reader(self._event_socket.fileno())


@contextlib.contextmanager
def _kernel_errors() -> Iterator[None]:
    """Translate errors: an interrupted dump to `ReadInterrupted`, an unreachable kernel to `Away`."""
    try:
        yield
    except netlink.DumpInterrupted as interrupted:
        raise ReadInterrupted(_WHAT, str(interrupted)) from interrupted
    except OSError as error:
        raise Away(_WHAT, error.strerror or str(error)) from error
