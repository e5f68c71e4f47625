"""Step-downs: an operator asks the leader to hand over, on its own machine or on that of another server.

The server that is asked checks first that another one can take over, and says who. The leader takes a request from
another machine (`requests`), checks again, and steps down only in the term that the operator saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.control.step_down_request import STEP_DOWN_REQUEST, StepDownRequest
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.intents.store import not_stored
from holdfast.server.election.elector import Elector
from holdfast.server.election.handover import HandoverRefused
from holdfast.server.election.machine import ElectionPhase, LossReason
from holdfast.server.election.registrar import Registrar
from holdfast.server.election.requests import LeasedRequests
from holdfast.store.api import Store, StoreAway, StoreError

log = structlog.get_logger(__name__)

LOOK_EVERY = Duration(seconds=1)
_VALID_FOR = Duration(seconds=15)
_KEY = "step-down"


class StepDowns:
    """Requests to and from one server. `asked` reads who asks and why, `record` writes a request to the history, `rest`
    is the time for which a server that stepped down is no candidate."""

    def __init__(
        self,
        store: Store,
        region: Region,
        name: str,
        elector: Elector,
        registrar: Registrar,
        *,
        asked: Callable[[Request, Who], Intent],
        record: Callable[[str, Intent], None],
        rest: Duration,
    ) -> None:
        self._requests = LeasedRequests(store, region, STEP_DOWN_REQUEST, _VALID_FOR)
        self._name = name
        self._elector = elector
        self._registrar = registrar
        self._asked = asked
        self._record = record
        self._rest = rest

    def handlers(self) -> Mapping[str, Handler]:
        return {"step-down": self._step_down, "step-down-elsewhere": self._ask_leader}

    async def _step_down(self, request: Request, who: Who) -> str:
        if self._elector.state.phase is not ElectionPhase.LEADING:
            raise Declined(f"{self._name} does not lead; holdfast leader shows which server does")
        return await self.hand_over(self._asked(request, who), _successor(request))

    async def hand_over(self, asked: Intent, to: str) -> str:
        """Step down, if a server can take over. Raises `Declined`."""
        able = await self._able(self._name, to)
        self._record(f"step down for {to}" if to else "step down", asked)
        self._elector.leave(LossReason.STEPPED_DOWN, self._rest, successor=to)
        return f"{self._name} steps down; {_takers(able, to)}"

    async def _ask_leader(self, request: Request, who: Who) -> str:
        """Ask the leader, which runs on another machine."""
        asked, to, seen = self._asked(request, who), _successor(request), self._elector.state.seen
        if seen is None or not seen.term or seen.leader is None:
            raise Declined("no server leads: see holdfast get servers")
        leader = seen.leader.name
        able = await self._able(leader, to)
        wanted = StepDownRequest(seen.term, to, asked.who, asked.why, asked.since)
        try:
            await self._requests.put(_KEY, wanted)
        except (StoreAway, StoreError) as error:
            raise not_stored(error, "holdfast leader") from error
        self._record(f"have {leader} step down", asked)
        return f"{leader} is asked to step down; {_takers(able, to)}"

    async def _able(self, leader: str, to: str) -> Sequence[str]:
        try:
            return await self._registrar.successors(leader, to)
        except (StoreAway, StoreError) as error:
            raise Declined(f"not done, because the other servers cannot be read: {error}") from error
        except HandoverRefused as refused:
            raise Declined(f"{leader} keeps the leadership: {refused}") from refused

    async def run(self) -> None:
        await self._requests.run(LOOK_EVERY, self.take)

    async def take(self) -> None:
        """Carry out a request to the leader of this term, if this server leads and there is one."""
        if self._elector.state.phase is not ElectionPhase.LEADING:
            return
        wanted = await self._requests.take(_KEY)
        if wanted is None:
            return
        state = self._elector.state
        if state.phase is not ElectionPhase.LEADING or wanted.term != state.term:
            log.info("step-down request of another term deleted", term=wanted.term, who=wanted.who)
            return
        asked = Intent(
            what=IntentKind.PAUSE,
            scope=Scope(ScopeKind.SERVER, self._name),
            who=f"{wanted.who} (through the store)",
            why=wanted.why,
            since=wanted.at,
        )
        try:
            await self.hand_over(asked, wanted.to)
        except Declined as declined:
            log.warning("step-down request refused", who=wanted.who, error=str(declined))


def _successor(request: Request) -> str:
    return str(request.args.get("to") or "")


def _takers(able: Sequence[str], to: str) -> str:
    return f"{to} takes over" if to else f"{' or '.join(able)} can take over"
