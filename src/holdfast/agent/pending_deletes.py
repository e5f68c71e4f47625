"""Pending deletes: a delete is over only when every handler has acknowledged it. Pure.

The journal makes a delete durable; this is the status per claim and handler, so that a retry asks only the handlers
that have not acknowledged. A claim that is wanted again cancels its delete as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.agent.claims import ClaimKey


@dataclass(frozen=True, slots=True)
class HandlerStatus:
    """Status of one delete at one handler: acknowledged, or the last error."""

    handler: str
    acknowledged: bool = False
    error: str = ""


@dataclass
class PendingDeletes:
    handlers: Sequence[str]
    """Names of all handlers that have to acknowledge."""
    _pending: dict[ClaimKey, dict[str, HandlerStatus]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: object) -> bool:
        return key in self._pending

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self._pending)

    def begin(self, keys: Iterable[ClaimKey]) -> None:
        for key in keys:
            self._pending.setdefault(key, {name: HandlerStatus(name) for name in self.handlers})

    def cancel(self, key: ClaimKey) -> None:
        self._pending.pop(key, None)

    def is_pending(self, key: ClaimKey, handler: str) -> bool:
        """Return whether this handler has still to acknowledge."""
        return not self._pending[key][handler].acknowledged

    def record(self, key: ClaimKey, handler: str, error: str | None) -> None:
        self._pending[key][handler] = HandlerStatus(handler, error is None, error or "")

    def statuses(self, key: ClaimKey) -> Sequence[HandlerStatus]:
        return tuple(self._pending.get(key, {}).values())
