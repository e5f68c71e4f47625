"""What a daemon remembers of the store it last acted on, in its state folder: (fleet id, epoch, highest revision).

A wiped etcd comes back with the same ids and only its revision falls, so somebody has to remember. Unreadable memory
is not "nothing remembered": that would make every store look like ours.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.runtime.paths import write_atomically
from holdfast.store.identity import SeenStore


class MemoryUnreadable(Exception):
    """The file cannot be read; the message is one sentence for the operator."""


class StoreMemory:
    """The file `ROLE.store.json` in the state folder."""

    def __init__(self, state: Path, role: str) -> None:
        self._path = state / f"{role}.store.json"

    @property
    def path(self) -> Path:
        return self._path

    def recall(self) -> SeenStore | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=SeenStore)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise MemoryUnreadable(f"{self._path} cannot be read ({error.strerror}): run as its owner") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MemoryUnreadable(
                f"{self._path} cannot be read ({error}): restore it, or delete it if the store is certainly ours"
            ) from error

    def keep(self, remembered: SeenStore) -> None:
        write_atomically(self._path, msgspec.json.encode(remembered))
