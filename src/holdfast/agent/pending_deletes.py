"""Deletions: each is over only when every handler has acknowledged it, and until then it is remembered who has not.

The journal makes a deletion durable; this is the status of each (claim, handler) beside it, so that a retry asks only
those that have not answered yet. When a claim is wanted again, its deletion is called off as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.agent.claims import ClaimKey


@dataclass(frozen=True, slots=True)
class HandlerStatus:
    """Where one handler stands with one deletion: acknowledged, or the last thing that it said against it."""

    handler: str
    acknowledged: bool = False
    error: str = ""


@dataclass
class PendingDeletes:
    """The deletions that were begun. `handlers` are the names of all that have to acknowledge."""

    handlers: Sequence[str]
    _begun: dict[ClaimKey, dict[str, HandlerStatus]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._begun)

    def __contains__(self, key: object) -> bool:
        return key in self._begun

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self._begun)

    def begin(self, keys: Iterable[ClaimKey]) -> None:
        for key in keys:
            self._begun.setdefault(key, {name: HandlerStatus(name) for name in self.handlers})

    def call_off(self, key: ClaimKey) -> None:
        self._begun.pop(key, None)

    def asks(self, key: ClaimKey, handler: str) -> bool:
        """Whether this handler has still to be asked."""
        return not self._begun[key][handler].acknowledged

    def answered(self, key: ClaimKey, handler: str, error: str | None) -> None:
        self._begun[key][handler] = HandlerStatus(handler, error is None, error or "")

    def statuses(self, key: ClaimKey) -> Sequence[HandlerStatus]:
        return tuple(self._begun.get(key, {}).values())
