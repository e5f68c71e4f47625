"""Intent stores: a file of this machine here, etcd in `etcd`. An intent is stored before it takes effect, so that a
restart does not undo it. An unreadable file does not count as an empty one: it may hold a pause."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.config.schema.scalars import duration
from holdfast.model.control.intent import Intent, IntentKind, IntentName
from holdfast.model.control.scope import Scope
from holdfast.reconcile import Away
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.paths import RolePaths, write_atomically
from holdfast.store.api import StoreAway, StoreError


class IntentStore(Protocol):
    def all(self) -> Iterable[Intent]:
        """Intents as last read, possibly with some that have expired."""
        ...

    async def refresh(self) -> None:
        """Read them again. Raises `Away`."""
        ...

    async def keep(self, intent: Intent, instead_of: Collection[IntentName] = ()) -> None:
        """Store an intent; it replaces one of the same name and those in `instead_of`. Raises `Declined`."""
        ...

    async def drop(self, names: Collection[IntentName], who: str) -> bool:
        """Withdraw intents; returns False if none of them was in force. Raises `Declined`."""
        ...


def not_stored(error: Away | StoreError, inspect: str = "holdfast get intents") -> Declined:
    """Return the refusal of a request whose write failed. One that was not answered may have been carried out."""
    if isinstance(error, StoreAway) and error.uncertain:
        return Declined(f"it is not known whether it was stored ({error}): see {inspect}, and repeat it if need be")
    return Declined(f"not done, because it could not be stored: {error}")


class IntentsUnreadable(RuntimeError):
    """The intents are not known. The message is for the operator."""


class FileIntents:
    """Intents of one worker of this machine, in `intents/ROLE.WORKER.json` of the state folder."""

    def __init__(self, paths: RolePaths, worker: str, clock: Clock) -> None:
        self._path: Path = paths.state / "intents" / f"{paths.role}.{worker}.json"
        self._clock = clock
        self._intents = {intent.name: intent for intent in self._read()}

    def all(self) -> tuple[Intent, ...]:
        return tuple(self._intents.values())

    async def refresh(self) -> None:
        """Nobody else writes the file."""

    async def keep(self, intent: Intent, instead_of: Collection[IntentName] = ()) -> None:
        others = {name: one for name, one in self._intents.items() if name not in instead_of}
        self._write({**others, intent.name: intent})

    async def drop(self, names: Collection[IntentName], who: str) -> bool:
        wall = self._clock.wall()
        in_force = any(one.name in names and one.holds(wall) for one in self._intents.values())
        self._write({name: one for name, one in self._intents.items() if name not in names})
        return in_force

    def _write(self, intents: dict[IntentName, Intent]) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._path, msgspec.json.encode(list(intents.values())))
        except OSError as error:
            raise Declined(f"not done, because {self._path} cannot be written: {error.strerror}") from error
        self._intents = intents

    def _read(self) -> list[Intent]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Intent])
        except FileNotFoundError:
            return []
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            sentence = f"{self._path} cannot be read ({error}): fix it, or delete it to drop all intents"
            raise IntentsUnreadable(sentence) from error


def shown_intents(intents: IntentStore, wall: datetime) -> Any:
    """Intents in force, as the command `intents` answers."""
    return msgspec.to_builtins([one for one in intents.all() if one.holds(wall)])


def request_intent(
    request: Request, who: Who, clock: Clock, what: IntentKind, scope: Scope, weight: int | None = None
) -> Intent:
    """Return the intent in a request. Raises `Declined` without a reason, or for an invalid duration."""
    why, within = request.args.get("reason"), request.args.get("for")
    if not isinstance(why, str) or not why.strip():
        raise Declined("a reason is needed: give it with --reason")
    since, until = clock.wall(), None
    if within is not None:
        try:
            until = since + duration(str(within))
        except (ValueError, OverflowError) as error:
            raise Declined(f"--for {within}: {error}") from error
    return Intent(what=what, scope=scope, who=who.name, why=why.strip(), since=since, until=until, weight=weight)
