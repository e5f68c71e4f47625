"""The inventory's other side, as the status workers see it: what is really up, beside what is wanted.

Keys are bytes in the order of bytes, documents the canonical JSON of `holdfast.model.fleet.observed`. Writes are fenced
like all of a leader's. Calls block: whoever has an event loop makes them in a thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from holdfast.inventory.api import Fence


class Seen(msgspec.Struct, frozen=True, gc=False):
    """One row of what was observed, and when it was written."""

    key: bytes
    doc: bytes
    at: datetime


class Touched(NamedTuple):
    """What changed in the inventory since some revision: the newest one there is, and the keys concerned."""

    newest: int
    present: Collection[bytes] = ()
    gone: Collection[bytes] = ()
    """Keys that objects had before, and that stand no more."""


class Observed(Protocol):
    """What a SQL inventory offers to the status workers; Neutron is another."""

    def read(self, kind: str, prefix: bytes, after: bytes | None, most: int) -> Sequence[Seen]:
        """Observed rows of that kind under the prefix, above that key, in order; fewer than `most` only at the end."""
        ...

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> None:
        """Writes each document under its keys and removes the keys that are gone, in one transaction of that term.
        Raises `Deposed`."""
        ...

    def wanted(self, prefix: bytes, after: bytes | None, most: int) -> Sequence[bytes]:
        """Keys of wanted objects under the prefix above that key, in key order."""
        ...

    def hosts(self, region: str) -> Sequence[str]:
        """The names of the region's hosts."""
        ...

    def newest(self) -> int:
        """The revision of the newest change; cheap."""
        ...

    def touched(self, kind: str, after: int) -> Touched:
        """Changes of objects of that kind since a revision."""
        ...
