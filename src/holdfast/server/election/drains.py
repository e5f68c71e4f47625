"""Drains of hosts: an intent in etcd, by which every balancer pauses the backends on that host; its routes stay.

Any server stores and withdraws them, and reads from the balancers' reports how many flows are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.name import NameRefused
from holdfast.model.base.region import Region
from holdfast.model.calico.host import HOST
from holdfast.model.control.intent import IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.intents.commands import record
from holdfast.runtime.intents.drains import Drain, read_drains, seen
from holdfast.runtime.intents.store import IntentStore, request_intent
from holdfast.store.api import Store, StoreAway, StoreError


class DrainCommands:
    def __init__(self, store: Store, region: Region, intents: IntentStore, context: Context) -> None:
        self._store = store
        self._region = region
        self._intents = intents
        self._context = context

    def handlers(self) -> Mapping[str, Handler]:
        return {"drain-host": self._drain, "undrain-host": self._undrain, "drains": self._shown}

    async def _drain(self, request: Request, who: Who) -> str:
        scope = _scope(request)
        intent = request_intent(request, who, self._context.clock, IntentKind.DRAIN, scope)
        await self._check_known(scope.name)
        await self._intents.keep(intent)
        record(self._context, scope, "drain", f"{who.name} asked for drain of {scope}{intent.lasting}: “{intent.why}”")
        return (
            f"{scope} is drained{intent.lasting}: every balancer pauses the backends on it; "
            f"end it with: holdfast undrain {scope}"
        )

    async def _undrain(self, request: Request, who: Who) -> str:
        scope = _scope(request)
        drained = await self._read()
        await self._intents.drop([IntentName(IntentKind.DRAIN, scope)], who.name)
        if not any(one.host == scope.name for one in drained):
            raise Declined(f"{scope} is not drained")
        record(self._context, scope, "undrain", f"{who.name} asked for undrain of {scope}")
        return f"{scope} is no longer drained: its backends are probed, and serve once they are healthy"

    async def _shown(self, _request: Request, _who: Who) -> Any:
        return msgspec.to_builtins(await self._read())

    async def _check_known(self, host: str) -> None:
        """Decline a host that the store does not know: a drain of a misspelt name would drain nothing."""
        try:
            found = await self._store.get(HOST.key(self._region, host))
        except NameRefused as error:
            raise Declined(str(error)) from error
        except (StoreAway, StoreError) as error:
            raise Declined(f"not done, because the store cannot be read: {error}") from error
        if found is None:
            raise Declined(f"there is no host {host}: holdfast get hosts lists them")

    async def _read(self) -> list[Drain]:
        """Read the drains in force and what the balancers report about them."""
        wall = self._context.clock.wall()
        try:
            intents = await read_drains(self._store, self._region, wall)
            pages = [page async for page in self._store.list(BALANCER_REPORT.prefix(self._region))]
        except (StoreAway, StoreError) as error:
            raise Declined(f"the drains cannot be read: {error}") from error
        balancers: dict[str, BalancerReport | Bad] = {}
        for entry in (one for page in pages for one in page.entries):
            name = BALANCER_REPORT.parse(entry.key, self._region)
            if isinstance(name, str):
                balancers[name] = BALANCER_REPORT.decode(entry.key, entry.value)
        return [seen(one, balancers) for one in intents]


def _scope(request: Request) -> Scope:
    name = str(request.args.get("name") or "")
    if not name:
        raise Declined("name a host: holdfast get hosts lists them")
    return Scope(ScopeKind.HOST, name)
