"""Says in the store how this host's endpoints are, as Felix does: one key each, without a lease.

Level, not edge: what stands there is compared with how it is, half a second at most after either changed. Only keys of
this host are written. A status goes when its endpoint is known to be gone, never because nobody mentioned it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog

from holdfast.model.base.bad import Bad
from holdfast.model.base.name import escape
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.reconcile import Away
from holdfast.store.api import Delete, OwnKey, Put, Store, StoreError
from holdfast.store.boottime import Now, boot_now
from holdfast.store.mirror.mirror import Mirror

log = structlog.get_logger(__name__)

LOOK = Duration(milliseconds=500)
_AGAIN = Duration(seconds=5)
_BATCH = 100

States = Callable[[], Mapping[EndpointName, EndpointState] | None]
"""How this host's endpoints are; None while it is not known which there are."""
All = Callable[[], bool]
"""Whether those are all: one whose value cannot be read is here too, and nobody knows how it is (C39)."""


class EndpointReporter:
    def __init__(
        self,
        store: Store,
        region: Region,
        host: str,
        states: States,
        now: Now = boot_now,
        own: OwnKey | None = None,
        are_all: All = lambda: True,
    ) -> None:
        """`own` is a key that this host writes anyway."""
        self._store = store
        self._region = region
        self._host = host
        self._states = states
        self._are_all = are_all
        prefix = ENDPOINT_STATUS.prefix(region) + f"{escape(host)}/workload/".encode()
        self._said: Mirror[EndpointStatus] = Mirror(store, prefix, ENDPOINT_STATUS.decode, own=own, now=now)
        self._obstacle = ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name="own endpoint statuses")
            tasks.create_task(self._speak(), name="endpoint statuses")

    async def look(self) -> None:
        """Writes what is not as it is said. Raises `Away` or `StoreError`."""
        states = self._states()
        if states is None or not self._said.synced:
            return
        operations = list(self._operations(states))
        for start in range(0, len(operations), _BATCH):
            await self._store.txn([], operations[start : start + _BATCH])

    def _operations(self, states: Mapping[EndpointName, EndpointState]) -> Iterator[Put | Delete]:
        wanted = {
            ENDPOINT_STATUS.key(self._region, EndpointStatusName.of(self._region, name, self._host)): state
            for name, state in sorted(states.items())
        }
        said = self._said.objects
        for key, state in wanted.items():
            if key in self._said.bad or key not in said or said[key].status is not state:
                yield Put(key, ENDPOINT_STATUS.encode(EndpointStatus(state)))
        for key in self._gone(wanted) if self._are_all() else ():
            yield Delete(key)

    def _gone(self, wanted: Mapping[bytes, EndpointState]) -> Sequence[bytes]:
        """Statuses of endpoints that are not here; what is none of ours to understand stays."""
        return [
            key
            for key in sorted(self._said.objects)
            if key not in wanted and not isinstance(ENDPOINT_STATUS.parse(key, self._region), Bad)
        ]

    async def _listen(self) -> None:
        while True:
            try:
                await self._said.run()
            except StoreError as refusal:
                log.error(f"the statuses of this host's endpoints cannot be followed: {refusal}")
            await asyncio.sleep(_AGAIN.total_seconds())

    async def _speak(self) -> None:
        while True:
            try:
                await self.look()
                self._obstacle = ""
                pause = LOOK
            except (Away, StoreError) as error:
                if not self._obstacle:
                    log.warning(f"the statuses of this host's endpoints cannot be written: {error}")
                self._obstacle = str(error)
                pause = _AGAIN
            await asyncio.sleep(pause.total_seconds())
