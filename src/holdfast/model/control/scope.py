"""Scopes of intents: the whole fleet, a server, a worker, a host, a frontend, a backend, a backend in one frontend, or
a source of an agent."""

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
    SOURCE = "source"


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
        if self.target is ScopeKind.MEMBER and not all(self.pair):
            raise ValueError("a member is named FRONTEND/BACKEND here")

    def __str__(self) -> str:
        return f"{self.target.value} {self.name}" if self.name else self.target.value

    @classmethod
    def member(cls, frontend: str, backend: str) -> Scope:
        """Scope of a backend in one frontend."""
        return cls(ScopeKind.MEMBER, f"{frontend}/{backend}")

    @property
    def pair(self) -> tuple[str, str]:
        """Frontend and backend of a member; the frontend is empty for a backend in all of them."""
        if self.target is not ScopeKind.MEMBER:
            return "", self.name
        frontend, _, backend = self.name.rpartition("/")
        return frontend, backend

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
