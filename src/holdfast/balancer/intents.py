"""Operator intents about backends and frontends, in one small file of the state folder.

The file is written before an intent takes effect. A file that cannot be read stops the start: an operator may have
disabled a backend, and forgetting that would put a broken server back into service.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.model.control.intent import Intent, IntentName
from holdfast.runtime.paths import write_atomically


class IntentStore(Protocol):
    """Storage of intents: a file of this machine, or the store."""

    def all(self) -> tuple[Intent, ...]: ...

    async def keep(self, intent: Intent, instead_of: tuple[IntentName, ...] = ()) -> None:
        """Stores an intent; it replaces an older one of the same name and those in `instead_of`."""
        ...

    async def drop(self, names: tuple[IntentName, ...]) -> None: ...


class BalancerIntentFile:
    """Intents of this machine alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._intents = {intent.name: intent for intent in self._read()}

    def all(self) -> tuple[Intent, ...]:
        return tuple(self._intents.values())

    async def keep(self, intent: Intent, instead_of: tuple[IntentName, ...] = ()) -> None:
        others = {name: one for name, one in self._intents.items() if name not in instead_of}
        self._write({**others, intent.name: intent})

    async def drop(self, names: tuple[IntentName, ...]) -> None:
        self._write({name: one for name, one in self._intents.items() if name not in names})

    def _write(self, intents: dict[IntentName, Intent]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(list(intents.values())))
        self._intents = intents

    def _read(self) -> list[Intent]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Intent])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            raise RuntimeError(
                f"cannot read {self._path} ({error}): repair it, or delete it to drop all intents"
            ) from error
