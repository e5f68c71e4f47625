"""Writes the status of this host's endpoints to the store, as Felix does: one key per endpoint, without a lease.

Level-based: the store's content is compared with the state, half a second at most after either has changed. Only keys
of this host are written, and one that another program keeps overwriting less and less often (`damping`); none while
another agent on this machine reports under the name of this host. A status is deleted when its endpoint is known to be
gone, never because it was not mentioned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from holdfast.agent.report.damping import StatusDamping
from holdfast.agent.report.reporting_host import ReportingHost
from holdfast.model.base.bad import Bad
from holdfast.model.base.name import escape
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.reconcile import Away
from holdfast.store.api import Delete, OwnKey, Put, Store, StoreError
from holdfast.store.boottime import Now, boot_now
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

INTERVAL = Duration(milliseconds=500)
_RETRY = Duration(seconds=5)
_BATCH = 100

States = Callable[[], Mapping[EndpointName, EndpointState] | None]
"""States of this host's endpoints; None while it is not known which endpoints there are."""
IsComplete = Callable[[], bool]
"""Tells whether those are all: an unreadable endpoint is on this host too, in an unknown state (C39)."""


class EndpointReporter:
    def __init__(
        self,
        store: Store,
        host: ReportingHost,
        states: States,
        now: Now = boot_now,
        own: OwnKey | None = None,
        is_complete: IsComplete = lambda: True,
    ) -> None:
        """`own` is a key that this host writes anyway."""
        self._store = store
        self._region = region = host.region
        self._host = host
        self._states = states
        self._is_complete = is_complete
        prefix = statuses_of(region, host.name)
        self._stored: Mirror[EndpointStatus] = Mirror(store, prefix, ENDPOINT_STATUS.decode, own=own, now=now)
        self._error = ""
        self._taken = ""
        self._now = now
        self._damping = StatusDamping()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name="own endpoint statuses")
            tasks.create_task(self._write_periodically(), name="endpoint statuses")

    async def write(self) -> None:
        """Write every status that differs from the store's. Raises `Away` or `StoreError`."""
        states = self._states()
        if states is None or not self._stored.synced:
            return
        wanted = {
            ENDPOINT_STATUS.key(self._region, EndpointStatusName.of(self._region, name, self._host.name)): state
            for name, state in sorted(states.items())
        }
        operations = list(self._operations(wanted))
        if operations and await self._is_taken():
            return
        for start in range(0, len(operations), _BATCH):
            batch = operations[start : start + _BATCH]
            result = await self._store.txn([], batch)
            written = {one.key: wanted[one.key] for one in batch if isinstance(one, Put)}
            self._damping.wrote(written, result.revision, self._now())

    async def _is_taken(self) -> bool:
        """Return whether another agent on this machine reports as this host: its report says whose statuses count."""
        key = AGENT_REPORT.key(self._region, self._host.name)
        entry = await self._store.get(key)
        taken = "" if entry is None else self._host.other_here(AGENT_REPORT.decode(key, entry.value))
        if taken and taken != self._taken:
            log.error("the statuses of this host's endpoints are not written", problem=taken)
        self._taken = taken
        return bool(taken)

    def _operations(self, wanted: Mapping[bytes, EndpointState]) -> Iterator[Put | Delete]:
        stored = self._stored.objects
        now = self._now()
        self._damping.forget_all_but(wanted)
        for key, state in wanted.items():
            is_there = key not in self._stored.bad and key in stored and stored[key].status is state
            if not is_there and self._damping.may_write(key, state, now, self._stored.revision):
                yield Put(key, ENDPOINT_STATUS.encode(EndpointStatus(state)))
        for key in self._gone(wanted) if self._is_complete() else ():
            yield Delete(key)

    def _gone(self, wanted: Mapping[bytes, EndpointState]) -> Sequence[bytes]:
        """Statuses of endpoints that are not here; keys that are not ours to understand stay."""
        return [
            key
            for key in sorted(self._stored.objects)
            if key not in wanted and not isinstance(ENDPOINT_STATUS.parse(key, self._region), Bad)
        ]

    async def _watch(self) -> None:
        await self._stored.keep_running(
            lambda error: log.error("watch of this host's endpoint statuses refused", error=str(error)), _RETRY
        )

    async def _write_periodically(self) -> None:
        while True:
            try:
                await self.write()
                self._error = ""
                pause = INTERVAL
            except (Away, StoreError) as error:
                if not self._error:
                    log.warning("cannot write the statuses of this host's endpoints; retrying", error=str(error))
                self._error = str(error)
                pause = _RETRY
            await asyncio.sleep(pause.total_seconds())


def statuses_of(region: Region, host: str) -> bytes:
    """Return the prefix of the statuses of a host's endpoints."""
    return ENDPOINT_STATUS.prefix(region) + f"{escape(host)}/workload/".encode()
