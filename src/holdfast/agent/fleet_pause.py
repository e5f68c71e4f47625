"""Pause of the fleet, as an agent obeys it: watched in the store, and remembered on disk.

Until the store has delivered its intents and was judged after that, a remembered pause stays in force (C69): a new list
may be that of a store that was restored to before the pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.model.control.intent import Intent, IntentKind, IntentName
from holdfast.model.control.scope import FLEET
from holdfast.runtime.intents.memory import IN_DOUBT, PauseMemory
from holdfast.store.identity import StoreVerdict

FLEET_PAUSE = IntentName(IntentKind.PAUSE, FLEET)


class FleetPause:
    """Pause of the fleet in one source. `verdict` returns that on its store."""

    def __init__(self, watcher: SourceWatcher, memory: PauseMemory, verdict: Callable[[], StoreVerdict | None]) -> None:
        self._watcher = watcher
        self._memory = memory
        self._verdict = verdict
        self._judged = 0

    def all(self, wall: datetime) -> Iterable[Intent]:
        self._read()
        return self._memory.pauses(wall)

    async def save(self) -> None:
        self._read()
        await self._memory.save()

    @property
    def lists(self) -> int:
        """Complete lists of intents that the store has delivered."""
        return self._watcher.intent_lists

    @property
    def is_judged(self) -> bool:
        """Return whether the store was judged after its last list of intents."""
        return self._judged == self.lists

    def judged(self, lists: int) -> None:
        """Note that the store was judged when that many lists were delivered."""
        if self._verdict() is not None:
            self._judged = lists

    def _read(self) -> None:
        in_doubt = not self.lists or not self.is_judged or (self._verdict() or StoreVerdict.RESTORED) in IN_DOUBT
        stored = self._watcher.stored_intent(FLEET_PAUSE)
        self._memory.judge({} if stored is None else {FLEET_PAUSE: stored}, in_doubt=in_doubt)
