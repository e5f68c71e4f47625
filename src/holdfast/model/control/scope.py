"""Scopes of intents and allowances, such as one agent, one frontend, or the syncer."""

from __future__ import annotations

from enum import Enum

import msgspec

from holdfast.model.base.address import shown
from holdfast.model.base.name import NameRefused, escape, segments, unescape


class ScopeKind(Enum):
    """Kinds of scopes."""

    SERVER = "server"
    SYNCER = "syncer"
    AGENT_STATUS = "agent-status"
    ENDPOINT_STATUS = "endpoint-status"
    AGENT = "agent"
    BALANCER = "balancer"
    HOST = "host"
    FRONTEND = "frontend"
    BACKEND = "backend"


_UNNAMED = frozenset(ScopeKind) - {ScopeKind.HOST, ScopeKind.FRONTEND, ScopeKind.BACKEND}
"""Without a name they mean all of the region."""


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`Scope(ScopeKind.AGENT, "r12-07")` is one agent, `Scope(ScopeKind.AGENT)` all of them."""

    target: ScopeKind
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name and self.target not in _UNNAMED:
            raise ValueError(f"a {self.target.value} needs a name here")

    def __str__(self) -> str:
        return f"{self.target.value} {self.name}" if self.name else self.target.value

    @property
    def path(self) -> str:
        """The scope as part of a key."""
        return f"{self.target.value}/{escape(self.name)}" if self.name else self.target.value

    @classmethod
    def of_path(cls, path: str) -> Scope:
        """Parse the scope in a key. Raises NameRefused."""
        word, *names = segments(path)
        try:
            if len(names) > 1:
                raise ValueError(f"{shown(path)} has too many parts")
            return cls(ScopeKind(word), unescape(names[0]) if names else "")
        except ValueError as error:
            raise NameRefused(str(error)) from None
