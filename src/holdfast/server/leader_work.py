"""Frame of a worker that works only while its server leads: follow, lead, follow again.

On a follower the commands are declined and the vitals say `following`. A new leader's worker confirms its term with the
store before anything else (C2). Work that does not stop before its lease may have run out ends the process.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn

import structlog

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.leader import LEADER
from holdfast.model.control.scope import Scope
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.runtime.daemon.worker import Worker
from holdfast.runtime.intents.commands import PauseCommands
from holdfast.runtime.intents.etcd import EtcdIntents
from holdfast.runtime.intents.store import shown_intents
from holdfast.runtime.tasks import until_first
from holdfast.server import server_name
from holdfast.server.election.handover import FOLLOWING
from holdfast.server.election.leadership import Leadership, Leading, while_leading
from holdfast.store.api import Store

log = structlog.get_logger(__name__)

EXIT_OVERDUE = 74
"""Exit code of a process whose leader work did not stop in time."""
_FOLLOWER_TICK = Duration(seconds=1)
_PAUSES_EVERY = Duration(seconds=10)
"""Time between two reads of the intents on a follower."""


class LeaderWork(ABC):
    """One worker of one server. `commands` are those that only the leader answers; `on_follower` says what the worker
    does on a server that does not lead."""

    def __init__(
        self,
        worker: Worker,
        leadership: Leadership,
        store: Store,
        region: Region,
        scope: Scope,
        intents: EtcdIntents,
        *,
        commands: Sequence[str],
        on_follower: str,
    ) -> None:
        self.worker = worker
        self.store = store
        self.leadership = leadership
        self.intents = intents
        self._scope = scope
        self.leader_key = LEADER.key(region, "leader")
        self._commands = commands
        self._on_follower = on_follower
        self._in_term = False

    async def run(self) -> None:
        """Work until the worker is to stop."""
        self._follow()
        leading = while_leading(self.leadership, self._run_term, self.worker.stopping, die=_die)
        following = {"following": self._show_following(), "pauses": self._remember_pauses()}
        await until_first({"leading": leading, **following, **self.always()})

    @abstractmethod
    async def begin(self, leading: Leading) -> Coroutine[Any, Any, None] | None:
        """Begin a term and installs its commands. Returns the term's work, which is cancelled when the term ends, or
        None if the term could not be confirmed."""

    @abstractmethod
    def clear_metrics(self) -> None:
        """Reset what only a leader knows: a follower must not go on showing it."""

    def always(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Tasks that run on leader and follower alike."""
        return {}

    def follower_handlers(self) -> Mapping[str, Handler]:
        """Commands that a follower answers, too."""
        return {}

    def follower_state(self) -> str:
        """State that the worker shows on a server that does not lead."""
        return FOLLOWING

    async def tick(self, *, following: bool) -> None:
        """Called every second; `following` is false while this server leads or its term's work is still stopping."""
        return

    async def is_confirmed(self, leading: Leading) -> bool:
        """Ask the store whether this term is still ours. Raises `Away` or `StoreError`."""
        confirmed = await self.leadership.confirm(self.store, self.leader_key)
        return isinstance(confirmed, Leading) and confirmed.term == leading.term

    async def _run_term(self, leading: Leading) -> None:
        self._in_term = True
        try:
            work = await self.begin(leading)
            if work is None:
                return
            try:
                await work
            finally:
                self._follow()
        finally:
            self._in_term = False

    def _follow(self) -> None:
        vitals = self.worker.vitals
        vitals.consumes(_NoBacklog())
        vitals.audit = NEVER
        vitals.state = self.follower_state()
        self.clear_metrics()
        declined = dict.fromkeys(self._commands, self._decline)
        pauses = PauseCommands(self.intents, self._scope, self.worker.context, None).handlers()
        self.worker.handlers |= {**declined, **pauses, "intents": self._shown, **self.follower_handlers()}

    async def _shown(self, _request: Request, _who: Who) -> Any:
        """Show the pauses on a follower as well: it would obey them."""
        return shown_intents(self.intents, self.worker.clock.wall())

    async def _show_following(self) -> None:
        while True:
            await asyncio.sleep(_FOLLOWER_TICK.total_seconds())
            # A term's work that is being cancelled still owns the vitals, although leadership is lost already.
            following = not self._in_term and not isinstance(self.leadership.check(), Leading)
            if following:
                state = self.follower_state()
                self.worker.vitals.attempted(success=not state.startswith("waiting"), state=state)
            await self.tick(following=following)

    async def _remember_pauses(self) -> None:
        """Follow pauses and resumes on a follower, too: it may lead when the store has lost them (C69)."""
        while True:
            await asyncio.sleep(_PAUSES_EVERY.total_seconds())
            if self._in_term:
                continue
            try:
                await self.intents.refresh()
            except Away as away:
                log.debug("cannot read intents; retrying", error=str(away))

    async def _decline(self, _request: Request, _who: Who) -> Any:
        name = self.worker.name
        raise Declined(
            f"{server_name(self.worker)} does not lead, so its {name} {self._on_follower}; "
            "holdfast leader shows which server leads"
        )


class _NoBacklog:
    """Backlog of a follower: the leader has the work."""

    def backlog(self) -> int:
        return 0

    def oldest(self) -> Instant:
        return NEVER


def _die(why: str) -> NoReturn:
    log.error("leader work is overdue; the process exits", reason=why, exit_code=EXIT_OVERDUE)
    os._exit(EXIT_OVERDUE)


async def idle_without_inventory(worker: Worker, commands: Sequence[str] = ()) -> None:
    """Run a worker that has nothing to do because `inventory.database` is not set."""
    worker.handlers |= dict.fromkeys(commands, _no_inventory)
    while not await worker.stopped(_FOLLOWER_TICK):
        worker.vitals.attempted(success=True, state="idle: inventory.database is not set")


async def _no_inventory(_request: Request, _who: Who) -> Any:
    raise Declined("this server has no inventory, so there is nothing to sync: set inventory.database")
