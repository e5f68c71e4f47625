"""Announce reconciler: reconciles the addresses on the devices with the last answer of the VIP reconciler."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping

from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.announce.gates import AnnounceGate
from holdfast.balancer.announce.policy import KINDS, AnnouncedAddress, AnnounceInput
from holdfast.balancer.announce.source import WantedAddresses
from holdfast.balancer.announce.target import AddressTarget
from holdfast.model.base.time import Duration
from holdfast.model.control.intent import Intent
from holdfast.netlink import ifaddr
from holdfast.netlink.socket import Netlink
from holdfast.reconcile import PauseGate, Synced, SyncGate
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.outstanding import OutstandingChange
from holdfast.runtime.reconciler.place import LoopTimings, Place

NAME = "announce"
_AUDIT = Duration(seconds=30)
"""The kernel reports every change; this interval is for lost reports."""


class AnnounceReconciler:
    def __init__(
        self, addresses: AddressTarget, context: Context, own_intents: Callable[[], Iterable[Intent]] = tuple
    ) -> None:
        self.addresses = addresses
        self.source = WantedAddresses(context.clock)
        self.pause_gate: PauseGate[AnnouncedAddress] = PauseGate()
        self.sync = SyncGate({VIPS_WORKER: Synced(context.clock.now())})
        self._clock = context.clock
        self._wanted: frozenset[AnnouncedAddress] = frozenset()
        self.loop: Reconciler[AnnouncedAddress, None] = Reconciler(
            self._place(), context, LoopTimings(audit=_AUDIT, recheck=Duration(milliseconds=500))
        )
        self.intents = AppliedIntents(
            context, self.loop, self.pause_gate, lambda: (*own_intents(), *self.source.policy.input.pauses)
        )

    def _place(self) -> Place[AnnouncedAddress, None]:
        return Place(
            name=NAME,
            source=self.source,
            target=self.addresses,
            gates=(self.pause_gate, AnnounceGate(self.source.policy), self.sync),
            kinds=KINDS,
            show=str,
            same=lambda _wanted, _held: True,
            quiet=("warm_up", "withdraw_delay"),
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped. What is announced stays."""
        with _address_events(self.loop.dirty.mark_all):
            await self.loop.run(stopping)

    def update(self, received: AnnounceInput) -> None:
        """Take an answer of the VIP reconciler, and compare the addresses that it changes."""
        self.source.update(received)
        self.intents.apply()
        known = self.sync.sources.get(VIPS_WORKER)
        if known is None or (known.revision, known.unreadable) != (received.revision, received.unreadable):
            self.sync.note_source(VIPS_WORKER, Synced(self._clock.now(), received.revision, received.unreadable))
        wanted = frozenset(self.source.policy.wanted())
        self.loop.dirty.mark(wanted ^ self._wanted)
        self._wanted = wanted
        self.source.policy.forget(self.addresses.held)

    def outstanding(self) -> Mapping[str, str]:
        """Reason why an address is not announced or withdrawn yet, by address."""
        return {one.change.key.host: _reason(self.loop.describe(one)) for one in self.loop.ledger}


def _reason(outstanding: OutstandingChange) -> str:
    return f"{outstanding.why}. To release: {outstanding.opens}" if outstanding.opens else outstanding.why


@contextlib.contextmanager
def _address_events(on_event: Callable[[], None]) -> Iterator[None]:
    """Call `on_event` whenever an address is added or removed in this network namespace."""
    events = Netlink(socket.NETLINK_ROUTE, ifaddr.GROUPS)

    def receive() -> None:
        try:
            list(events.receive())
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # events were lost, so something has changed
                raise
        on_event()

    loop = asyncio.get_running_loop()
    loop.add_reader(events, receive)
    try:
        yield
    finally:
        loop.remove_reader(events)
        events.close()
