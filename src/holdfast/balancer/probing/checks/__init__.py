"""Checks: what to say to a backend, and what its answer means. No IO, no clock: bytes in, bytes or a verdict out.

A check type is one module of this package that has a `CHECK`; its `prepare` reads a target's settings once and hands
out one conversation per probe. Whoever has a way to the backend (a carrier) calls `start` when the way is open, sends
what it gets, and calls `feed` with what comes back, until there is a `ProbeVerdict`. A new type is one new file.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from holdfast.balancer.probing.messages import ProbeCode, TargetSpec


class ProbeVerdict(NamedTuple):
    """How a probe ended. `answered_by` is what the backend called itself, when it was asked to."""

    passed: bool
    code: ProbeCode
    detail: str = ""
    answered_by: str = ""


class Conversation(Protocol):
    """One probe. Bytes returned are to be sent; none of them means: wait for more."""

    def start(self) -> bytes | ProbeVerdict:
        """The way is open."""
        ...

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        """The backend said this; nothing at all means that it closed the connection."""
        ...

    def timed_out(self) -> ProbeVerdict:
        """The way was open, and no verdict came in time."""
        ...


class Carrier(Enum):
    """What a conversation travels on."""

    STREAM = "stream"
    """A fresh TCP connection per probe."""
    ECHO = "echo"
    """ICMP echo; `feed` gets a reply that was meant for this probe, or a router's word that it is in vain."""


class CheckType(NamedTuple):
    """`prepare` raises `UncheckableTarget` when the settings make no sense."""

    carrier: Carrier
    prepare: Callable[[TargetSpec], Callable[[], Conversation]]


class UncheckableTarget(Exception):
    """A target cannot be checked as it is described; the message is one sentence for the operator."""


@functools.cache
def registry() -> Mapping[str, CheckType]:
    """All check types, by the name of their module."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.CHECK for name, module in modules.items() if hasattr(module, "CHECK")}


def find(target: TargetSpec) -> CheckType:
    """The target's check type."""
    kind = registry().get(target.check.type)
    if kind is None:
        raise UncheckableTarget(
            f"{target.id}: there is no check type {target.check.type!r}; there are: {', '.join(registry())}"
        )
    return kind
