"""Store memory: the identity of the store a daemon last acted on (fleet id, epoch, highest revision), kept on disk.

A wiped etcd returns with the same ids and only its revision falls, which only a memory outside etcd reveals. An
unreadable file does not count as an empty one: that would accept any store as the right one.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.runtime.paths import write_atomically
from holdfast.store.identity import SeenStore


class MemoryUnreadable(Exception):
    """The file cannot be read; the message is for the operator."""


class StoreMemory:
    """The file `ROLE.store.json` in the state folder."""

    def __init__(self, state: Path, role: str) -> None:
        self._path = state / f"{role}.store.json"

    @property
    def path(self) -> Path:
        return self._path

    def load(self) -> SeenStore | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=SeenStore)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MemoryUnreadable(f"{self._path} cannot be read ({error.strerror}): run as its owner") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MemoryUnreadable(
                f"{self._path} cannot be read ({error}): restore it, or delete it if this is certainly the right store"
            ) from error

    def keep(self, remembered: SeenStore) -> None:
        write_atomically(self._path, msgspec.json.encode(remembered))
