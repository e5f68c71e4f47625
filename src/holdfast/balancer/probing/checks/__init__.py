"""Checks: what to send to a backend, and what its answer means. No IO, no clock: bytes in, bytes or a verdict out.

A check type is one module of this package that has a `CHECK`; its `prepare` reads the settings of a target once and
returns a factory of conversations, one per probe. The transport calls `start` when the connection is open, sends what
it returns, and calls `feed` with the answer, until there is a `ProbeVerdict`. To add a type, add one
module here, and its name and fields to `config/sections/healthcheck.py`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import ssl
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from holdfast.balancer.probing.messages import ProbeCode, TargetSpec


class ProbeVerdict(NamedTuple):
    """Result of a probe. `answered_by` is the name in the header that `TargetSpec.backend_header` names."""

    passed: bool
    code: ProbeCode
    detail: str = ""
    answered_by: str = ""


class Conversation(Protocol):
    """Protocol of one probe. Returned bytes are to be sent; none means to wait for more."""

    def start(self) -> bytes | ProbeVerdict:
        """Called when the connection is open."""
        ...

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        """Take data from the backend; empty when it closed the connection."""
        ...

    def timed_out(self) -> ProbeVerdict:
        """Verdict of a probe whose connection was open when it timed out."""
        ...


class Carrier(Enum):
    """Transport that a conversation needs."""

    STREAM = "stream"
    """A new TCP connection per probe."""
    ECHO = "echo"
    """ICMP echo; `feed` gets the reply to this probe, or an ICMP error about it."""
    DATAGRAM = "datagram"
    """UDP; `feed` gets one datagram at a time."""


class CheckFiles(Protocol):
    """Files that a check names. What is returned follows their changes; raises `UncheckableTarget`."""

    def tls(self, target: TargetSpec) -> Callable[[], ssl.SSLContext]:
        """Authorities and client certificate of the target."""
        ...

    def headers(self, target: TargetSpec) -> Callable[[], Mapping[str, str]]:
        """Values of the headers that are in files, by name."""
        ...


class CheckType(NamedTuple):
    """A check type. `prepare` raises `UncheckableTarget` when the settings are invalid."""

    carrier: Carrier
    prepare: Callable[[TargetSpec, CheckFiles], Callable[[], Conversation]]


class UncheckableTarget(Exception):
    """The settings of a target are invalid; the message is one sentence for the operator."""


@functools.cache
def registry() -> Mapping[str, CheckType]:
    """All check types, by the name of their module."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.CHECK for name, module in modules.items() if hasattr(module, "CHECK")}


def find(target: TargetSpec) -> CheckType:
    """Find the check type of a target."""
    kind = registry().get(target.check.type)
    if kind is None:
        raise UncheckableTarget(
            f"{target.id}: there is no check type {target.check.type!r}; there are: {', '.join(registry())}"
        )
    return kind
