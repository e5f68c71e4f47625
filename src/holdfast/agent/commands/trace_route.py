"""Traces where packets for an address go from this host, and why: the matching route, and the objects it depends on.
Pure.

The route is chosen by the longest prefix, as the kernel does, among everything that is wanted or present: a route that
is only wanted explains why packets do not go there yet, one that is only present why they still do.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.agent.claims import (
    Claim,
    ClaimKey,
    ClaimKind,
    FdbEntry,
    LocalRoute,
    Mode,
    NexthopEntry,
    RemoteRoute,
    depends_on,
)
from holdfast.agent.commands.views import AgentView, ObjectRow
from holdfast.model.base.address import prefix_order
from holdfast.reconcile import Owned

_BITS = {4: 32, 6: 128}


class RouteTrace(msgspec.Struct, frozen=True):
    """Answer of `explain route`."""

    prefix: str
    host: str
    endpoint: str
    leads: str
    """To an interface, directly to an address, or through the tunnel to one."""
    steps: list[ObjectRow]
    """The route, and each object that it depends on."""


def trace(view: AgentView, text: str) -> RouteTrace | None:
    """Trace packets to that address, or the least specific route inside that prefix; None: no route of ours."""
    family, number, length = prefix_order(text)
    key = _matching_route(view, family, number, length)
    if key is None:
        return None
    steps = list(_steps(view, key))
    owner = _known(view, key).value.owner
    rows = [view.row(step) for step in steps]
    return RouteTrace(key.text, owner.host, owner.endpoint, _leads(view, steps), rows)


def _matching_route(view: AgentView, family: int, number: int, length: int) -> ClaimKey | None:
    for bits in range(length, -1, -1):
        spare = _BITS[family] - bits
        key = ClaimKey(ClaimKind.ROUTE, family, number >> spare << spare, bits)
        if key in view.present or key in view.wanted:
            return key
    return None


def _steps(view: AgentView, key: ClaimKey) -> Iterator[ClaimKey]:
    step: ClaimKey | None = key
    while step is not None:
        yield step
        known = view.present.get(step) or view.wanted.get(step)
        step = None if known is None else next(iter(depends_on(step, known.value.shape)), None)


def _known(view: AgentView, key: ClaimKey) -> Owned[Claim]:
    return view.present.get(key) or view.wanted[key]


def _leads(view: AgentView, steps: list[ClaimKey]) -> str:
    shapes = [_known(view, key).value.shape for key in steps if key in view.present or key in view.wanted]
    match shapes:
        case [LocalRoute(interface=interface)]:
            return f"to interface {interface}"
        case [RemoteRoute(via=via), NexthopEntry(mode=Mode.DIRECT)]:
            return f"directly to {via}"
        case [RemoteRoute(), NexthopEntry(), _, FdbEntry(to=host), _]:
            return f"through the tunnel to {host}"
        case [RemoteRoute(via=via), *_]:
            return f"nowhere yet: objects on the path to {via} are missing"
    return "nowhere"
