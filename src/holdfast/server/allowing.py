"""An operator's `allow` at the syncer, recorded in the store: agents need not be asked for the same deletes again.

It is recorded after the deletes were written, with the store's revision at that moment. Agents honour it for changes
up to that revision: what the operator saw, and nothing that came later.
"""

from __future__ import annotations

from typing import Any

import structlog

from holdfast.config.text import duration
from holdfast.model.allowance import ALLOWANCE, Allowance
from holdfast.model.scope import Scope, Target
from holdfast.runtime.control import Handler, Request, Who
from holdfast.server.resync import next_pass
from holdfast.server.syncer import Reign
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.identity import read_identity

log = structlog.get_logger(__name__)


class Allowing:
    """Answers `allow` for one reign; `allow` is what opens the brake itself."""

    def __init__(self, reign: Reign, allow: Handler) -> None:
        self._reign = reign
        self._allow = allow

    async def answer(self, request: Request, who: Who) -> Any:
        passes = self._reign.reconciler.passes
        said = await self._allow(request, who)
        self._reign.start(self._record_after(passes, request, who))
        return said

    async def _record_after(self, passes: int, request: Request, who: Who) -> None:
        await next_pass(self._reign.reconciler, passes)
        try:
            revision = await self._record(request, who)
        except (StoreAway, StoreError) as error:
            log.warning(f"the allowance could not be recorded in the store, so agents may ask for it again: {error}")
        else:
            log.info(f"what {who.name} allowed is recorded: agents honour it up to revision {revision}")

    async def _record(self, request: Request, who: Who) -> int:
        around, within = self._reign.around, request.args.get("for")
        found = await read_identity(around.store, around.region)
        now = around.clock.wall()
        allowance = Allowance(
            gate="brake",
            scope=Scope(Target.SYNCER),
            revision=found.revision,
            who=who.name,
            why=str(request.args["reason"]).strip(),
            since=now,
            once=within is None,
            until=None if within is None else now + duration(str(within)),
        )
        key = ALLOWANCE.key(around.region, allowance.name)
        await self._reign.fenced.put(key, ALLOWANCE.encode(allowance))
        return found.revision
