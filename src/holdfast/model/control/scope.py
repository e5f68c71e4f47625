"""Scopes of intents: the whole fleet, a server, a worker, a host, a frontend or one of its pools, a backend, a backend
in one frontend, or a source of an agent."""

from __future__ import annotations

from enum import Enum

import msgspec

from holdfast.model.base.address import shown
from holdfast.model.base.name import NameRefused, escape, segments, unescape


class ScopeKind(Enum):
    """Kinds of scopes; the KIND of `holdfast pause KIND NAME`."""

    FLEET = "fleet"
    SERVER = "server"
    WORKER = "worker"
    HOST = "host"
    FRONTEND = "frontend"
    BACKEND = "backend"
    MEMBER = "member"
    """A backend in the pools of one frontend: FRONTEND/BACKEND."""
    POOL = "pool"
    """All backends in one pool of a frontend: FRONTEND/POOL."""
    SOURCE = "source"


_PAIRS = {ScopeKind.MEMBER: "FRONTEND/BACKEND", ScopeKind.POOL: "FRONTEND/POOL"}
_UNNAMED = frozenset({ScopeKind.FLEET, ScopeKind.SERVER})
"""Without a name, a server is the one that was asked."""


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`Scope(ScopeKind.HOST, "r12-07")` is one host, `Scope(ScopeKind.FLEET)` the whole fleet."""

    target: ScopeKind
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name and self.target not in _UNNAMED:
            raise ValueError(f"a {self.target.value} needs a name here")
        if self.name and self.target is ScopeKind.FLEET:
            raise ValueError("there is one fleet, so it has no name here")
        if self.target in _PAIRS and not all(self.pair):
            raise ValueError(f"a {self.target.value} is named {_PAIRS[self.target]} here")

    def __str__(self) -> str:
        return f"{self.target.value} {self.name}" if self.name else self.target.value

    @classmethod
    def member(cls, frontend: str, backend: str) -> Scope:
        """Scope of a backend in one frontend."""
        return cls(ScopeKind.MEMBER, f"{frontend}/{backend}")

    @classmethod
    def pool(cls, frontend: str, pool: str) -> Scope:
        """Scope of a pool of a frontend, by the pool's name or number."""
        return cls(ScopeKind.POOL, f"{frontend}/{pool}")

    @property
    def pair(self) -> tuple[str, str]:
        """Frontend and backend of a member, or frontend and pool of a pool; for all others, nothing and the name."""
        if self.target not in _PAIRS:
            return "", self.name
        frontend, _, name = self.name.rpartition("/")
        return frontend, name

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


FLEET = Scope(ScopeKind.FLEET)
