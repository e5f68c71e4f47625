"""Pause memory: the pause that a server last read in the store, kept on disk, and when it counts.

A store that was restored from a backup, wiped, or is being filled may have lost a pause. While it is in doubt, the
remembered pause stays in force until it expires or a later request replaces it (C69). A resume is then a later request,
too: a pause that is over. The remembered pause is written back into the store, because once that is ours again only
what it holds counts. An unreadable file may hold a pause, so it counts as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from holdfast.model.base.bad import Bad, BadReason, shortened
from holdfast.model.control.intent import Intent
from holdfast.model.control.scope import Scope
from holdfast.runtime.paths import write_atomically
from holdfast.runtime.store_guard import Offload
from holdfast.runtime.store_memory import MemoryUnreadable
from holdfast.store.identity import SeenStore, StoreIdentity, StoreVerdict, classify_store

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
    """The file `intents/server.SCOPE.pause.json` in the state folder, and the server's memory of the store. All readers
    of one scope in a process share it."""

    def __init__(
        self,
        state: Path,
        scope: Scope,
        seen_store: Callable[[], SeenStore | None],
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._path = state / "intents" / f"server.{scope.target.value}.pause.json"
        self._seen_store = seen_store
        self._offload = offload
        self._writing = asyncio.Lock()
        self._unsaved = False

    def load(self) -> Intent | Bad | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Intent)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            return Bad(str(self._path).encode(), BadReason.WRONG_SHAPE, shortened(str(error)))

    async def keep(self, pause: Intent | None) -> None:
        """Save a pause, or that there is none. A disk that takes no writes does not stop the work."""
        try:
            async with self._writing:
                await self._offload(lambda: self._write(pause))
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:
                log.error("cannot save the pause; retrying", path=str(self._path), error=str(error))
            self._unsaved = True

    def seen_store(self) -> SeenStore | MemoryUnreadable | None:
        """Recall the store that this server knows; called before the store is asked (C49)."""
        try:
            return self._seen_store()
        except MemoryUnreadable as error:
            return error

    def _write(self, pause: Intent | None) -> None:
        if pause is None:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(pause))


def verdict_of(seen: SeenStore | MemoryUnreadable | None, found: StoreIdentity) -> StoreVerdict:
    """Judge the store. Without a readable memory it may have been restored."""
    return StoreVerdict.RESTORED if isinstance(seen, MemoryUnreadable) else classify_store(seen, found).verdict
