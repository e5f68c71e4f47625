"""Pause memory: the pauses that a daemon last read in the store, kept on disk, and when they count.

A store that was restored from a backup, wiped, is being filled, or has not answered yet may lack a pause. While it is
in doubt, the remembered pause stays in force until it expires or a later request replaces it (C69). A resume is then a
later request, too: a pause that is over. An unreadable file may hold a pause, so it counts as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

from holdfast.model.base.bad import Bad, BadReason, shortened
from holdfast.model.control.intent import Intent, IntentName
from holdfast.runtime.paths import write_atomically
from holdfast.runtime.store_guard import Offload
from holdfast.store.identity import StoreVerdict

log = structlog.get_logger(__name__)

IN_DOUBT = frozenset(StoreVerdict) - {StoreVerdict.OURS, StoreVerdict.INVENTORY_RESTORED}
"""Verdicts under which the store may lack a pause."""


def pause_in_force(  # protection: C69
    stored: Intent | Bad | None, remembered: Intent | Bad | None, *, in_doubt: bool
) -> Intent | Bad | None:
    """Choose between the stored and the remembered pause: in doubt, the later request counts."""
    if not in_doubt or remembered is None or isinstance(stored, Bad):
        return stored
    if stored is None or isinstance(remembered, Bad):
        return remembered if stored is None else stored
    return remembered if stored.since < remembered.since else stored


class PauseMemory:
    """The file `intents/PLACE.remembered.json` in the state folder, and the pauses in force."""

    def __init__(
        self, state: Path, place: str, names: Iterable[IntentName], offload: Offload = asyncio.to_thread
    ) -> None:
        self._path = state / "intents" / f"{place}.remembered.json"
        self._names = tuple(names)
        self._offload = offload
        self._writing = asyncio.Lock()
        self._remembered = self._load()
        self._unsaved = False
        self._in_force: dict[IntentName, Intent | Bad] = {}
        self.judge({}, in_doubt=True)

    def judge(self, stored: Mapping[IntentName, Intent | Bad], *, in_doubt: bool) -> None:
        """Decide which pauses are in force, given what the store has now."""
        remembered = self._remembered
        self._in_force = {}
        for name in self._names:
            known = remembered if isinstance(remembered, Bad) else remembered.get(name)
            pause = pause_in_force(stored.get(name), known, in_doubt=in_doubt)
            if pause is not None:
                self._in_force[name] = pause

    def get(self, name: IntentName) -> Intent | Bad | None:
        return self._in_force.get(name)

    def pauses(self, wall: datetime) -> Iterable[Intent]:
        """Pauses in force; an unreadable one counts as a pause without an end."""
        for name, one in self._in_force.items():
            yield unreadable_pause(name, one, wall) if isinstance(one, Bad) else one

    async def save(self) -> None:
        """Remember the pauses in force. A disk that takes no writes does not stop the work."""
        before, found = self._remembered, self._in_force
        if isinstance(before, Bad) and any(isinstance(one, Bad) for one in found.values()):
            return  # what the file held is not known, and may still count
        known = {} if isinstance(before, Bad) else before
        readable = {name: known.get(name) if isinstance(one, Bad) else one for name, one in found.items()}
        pauses = {name: one for name, one in readable.items() if one is not None}
        if pauses == before and not self._unsaved:
            return
        self._remembered = pauses
        try:
            async with self._writing:
                await self._offload(lambda: self._write(list(pauses.values())))
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:
                log.error("cannot save the pauses; retrying", path=str(self._path), error=str(error))
            self._unsaved = True

    def _load(self) -> dict[IntentName, Intent] | Bad:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=list[Intent])
            return {intent.name: intent for intent in found}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            return Bad(str(self._path).encode(), BadReason.WRONG_SHAPE, shortened(str(error)))

    def _write(self, pauses: list[Intent]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(pauses))


def unreadable_pause(name: IntentName, bad: Bad, wall: datetime) -> Intent:
    why = f"the stored pause is unreadable: {bad}"
    return Intent(what=name.what, scope=name.scope, who="an operator", why=why, since=wall)
