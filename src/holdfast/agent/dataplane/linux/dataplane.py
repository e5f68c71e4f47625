"""Dataplane on a Linux kernel: reads everything at once, applies packed batches, and watches what others change.

It keeps a snapshot of our objects: read whole from the kernel, updated by what the kernel acknowledged to us, and
dropped when something happened that it cannot follow. A read of a few objects uses the snapshot; a read of all of them
always reads the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from pathlib import Path

from holdfast.agent.claims import (
    GUARD,
    LOCAL_KINDS,
    ClaimKey,
    ClaimKind,
    GuardTable,
    InterfaceSetup,
    LocalRoute,
    Mode,
    NexthopEntry,
    Shape,
    VxlanDevice,
    interface_name,
)
from holdfast.agent.dataplane.api import ClaimChange, HostDataplaneInfo, ReadInterrupted
from holdfast.agent.dataplane.linux.apply import apply
from holdfast.agent.dataplane.linux.context import LinuxContext
from holdfast.agent.dataplane.linux.devices import FAMILIES, Devices, UnderlayLookup
from holdfast.agent.dataplane.linux.event_handler import EventHandler
from holdfast.agent.dataplane.linux.event_socket import EventSocket, Overrun
from holdfast.agent.dataplane.linux.exclusive import NamespaceLock, missing_capability
from holdfast.agent.dataplane.linux.guard.events import GuardEvents
from holdfast.agent.dataplane.linux.guard.guard import Guard
from holdfast.agent.dataplane.linux.interfaces import gateway_route
from holdfast.agent.dataplane.linux.routes import direct_device, own_rules
from holdfast.agent.dataplane.linux.snapshot import KernelSnapshot, retake, take
from holdfast.agent.dataplane.linux.takeover import IsKnown, take_over
from holdfast.agent.dataplane.marks import KernelMark
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import routes
from holdfast.netlink import socket as netlink
from holdfast.netlink.addresses import SIZES
from holdfast.netlink.routes import RouteMark
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
        self,
        settings: LinuxSettings | None = None,
        underlays: UnderlayLookup = lambda _family: None,
        *,
        exclusive: bool = False,
        guard: bool = False,
        is_routed: bool = False,
    ) -> None:
        """`underlays` gives the addresses of this host to which others send the packets of our tunnels.

        `exclusive` makes it the only agent of this network namespace until `close`; without it, use it for reading
        only. `guard` has interfaces and tunnels guarded; without it, what is left of a guard can be deleted.
        `is_routed`: others distribute the routes to other hosts, so the uplinks have to forward.
        """
        self._settings = settings or LinuxSettings()
        self._namespace_lock = NamespaceLock() if exclusive else None
        self._families = FAMILIES if _IPV6.exists() else (4,)
        with _kernel_errors():
            kernel = netlink.Netlink(socket.NETLINK_ROUTE)
            self._event_socket = EventSocket(kernel, self._settings.protocol)
            devices = Devices(kernel, self._settings, underlays, is_routed=is_routed)
        self._guard_table = GuardTable(self._settings.vni, self._settings.port)
        self._guards = guard
        found = Guard(self._guard_table)
        self._guard_events = GuardEvents(found.port) if found.port else None
        snapshot = KernelSnapshot(self._settings.first_nexthop)
        self._context = LinuxContext(kernel, self._settings, devices, snapshot, found)
        self._events = EventHandler(self._context)
        self._disturbed: set[ClaimKey] | None = set()
        self._lock = asyncio.Lock()
        self._has_events = asyncio.Event()

    def close(self) -> None:
        self._event_socket.close()
        self._context.kernel.close()
        self._context.devices.sysctls.close()
        self._context.guard.close()
        if self._guard_events is not None:
            self._guard_events.close()
        if self._namespace_lock is not None:
            self._namespace_lock.close()

    def ready(self) -> str | None:
        return missing_capability()

    def describe(self) -> HostDataplaneInfo:
        own = own_rules(self._settings, self._families) | gateway_route(self._families)
        own |= {GUARD: self._guard_table} if self._guards else {}
        return HostDataplaneInfo(
            self.name, own, sets_up_interfaces=True, guards=self._guards, uplinks=tuple(self._uplinks())
        )

    def take_over(self, former: KernelMark, is_known: IsKnown) -> Sequence[str]:
        """Give objects of an earlier run, with these marks, those of the settings; return what the kernel refused."""
        with _kernel_errors():
            return take_over(self._context, former, is_known, self._families)

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
                if self._context.lost:
                    self._context.lost = False
                    self._events.events_lost()
                    self._has_events.set()
        refused = {change.key for change, answer in zip(changes, answers, strict=True) if answer is not None}
        self._events.refused.difference_update(change.key for change in changes)
        self._events.refuse(refused)
        return answers

    def blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        found = self._blocked_by(key, shape)
        if found is not None:
            self._events.waiting.add(key)
        return found

    def routes_in(self, table: int) -> Set[ClaimKey]:
        with _kernel_errors():
            found = [routes.dump(self._context.kernel, RouteMark(table, 0), SIZES[each]) for each in self._families]
        columns = zip(self._families, found, strict=True)
        return {
            ClaimKey(ClaimKind.ROUTE, family, *place)
            for family, each in columns
            for place in zip(each.destinations, each.lengths, strict=True)
        }

    async def disturbed(self) -> Collection[ClaimKey] | None:
        while True:
            async with self._lock:
                await in_turns(self._read_events())
                keys, self._disturbed = self._disturbed, set()
            if keys is None or keys:
                return keys
            await self._event_arrived()

    def _uplinks(self) -> Iterator[tuple[int, str]]:
        devices, local = self._context.devices, self._context.snapshot.local
        for family in self._families if devices.is_routed else ():
            if local[family] - devices.tunnel_names() - {"lo"}:
                yield from ((family, name) for name in sorted(devices.uplinks()) or [""])

    def _blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        if isinstance(shape, LocalRoute):
            return self._context.devices.blocked_by(shape.interface)
        if key.kind in LOCAL_KINDS and (unfit := self._unfit(interface_name(key))) is not None:
            return unfit
        if isinstance(shape, InterfaceSetup):
            return self._context.devices.blocked_by(interface_name(key))
        if isinstance(shape, NexthopEntry) and shape.mode is Mode.DIRECT:
            device = direct_device(self._context, key)
            return device if isinstance(device, str) else None
        if isinstance(shape, VxlanDevice):
            return self._context.devices.tunnel_blocked_by(key.family)
        return None

    def _unfit(self, interface: str) -> str | None:
        try:
            with _kernel_errors():
                return self._context.devices.unfit(interface)
        except Away as away:
            return str(away)

    async def _refresh(self, *, force: bool = False) -> None:
        """Bring the snapshot up to date with the kernel."""
        await in_turns(self._read_events())
        await asyncio.sleep(0)
        has_other_tunnels = self._context.devices.tunnel_numbers() != self._context.snapshot.tunnels
        has_other_uplinks = self._context.devices.uplinks() != self._context.snapshot.uplinks
        is_stale = self._events.is_stale or has_other_tunnels or has_other_uplinks or force
        if not (is_stale or self._events.stale):
            return
        # Events from here on happened after the read began, and are applied to its result.
        context = self._context
        with _kernel_errors():
            if is_stale:
                taking = take(context.kernel, self._settings, context.devices, context.snapshot, context.guard)
                context.snapshot = await in_turns(taking)
            else:
                stale = frozenset(self._events.stale)
                part = retake(context.kernel, self._settings, context.devices, stale, context.snapshot, context.guard)
                await in_turns(part)
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
                if self._guard_events is not None and self._guard_events.arrived():
                    self._events.events_lost()
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
        sockets = [one.fileno() for one in (self._event_socket, self._guard_events) if one is not None]
        for number in sockets:
            loop.add_reader(number, self._has_events.set)
        try:
            await self._has_events.wait()
        finally:
            self._has_events.clear()
            for number in sockets:
                loop.remove_reader(number)


@contextlib.contextmanager
def _kernel_errors() -> Iterator[None]:
    """Translate errors: an interrupted dump to `ReadInterrupted`, an unreachable kernel to `Away`."""
    try:
        yield
    except netlink.DumpInterrupted as interrupted:
        raise ReadInterrupted(_WHAT, str(interrupted)) from interrupted
    except OSError as error:
        raise Away(_WHAT, error.strerror or str(error)) from error
