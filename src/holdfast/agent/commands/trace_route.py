"""Where packets for an address go from this host, and why: the route that catches them, and what it leans on. Pure.

The route is found as the kernel finds it, by the longest prefix, among all that is wanted or present: a route that is
only wanted explains why packets do not go there yet, one that is only present why they still do.
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
    leans_on,
)
from holdfast.agent.commands.views import AgentView, ObjectRow
from holdfast.model.base.address import prefix_order
from holdfast.reconcile import Owned

_BITS = {4: 32, 6: 128}


class RouteTrace(msgspec.Struct, frozen=True):
    """What `explain route` shows."""

    prefix: str
    host: str
    endpoint: str
    leads: str
    """To an interface, directly to an address, or through the tunnel to one."""
    steps: list[ObjectRow]
    """The route, and each object that it leans on."""


def trace(picture: AgentView, text: str) -> RouteTrace | None:
    """The way of packets to that address, or of the most general route inside that prefix; None: no route of ours."""
    family, number, length = prefix_order(text)
    key = _caught(picture, family, number, length)
    if key is None:
        return None
    steps = list(_steps(picture, key))
    owner = _known(picture, key).value.owner
    rows = [picture.row(step) for step in steps]
    return RouteTrace(key.text, owner.host, owner.endpoint, _leads(picture, steps), rows)


def _caught(picture: AgentView, family: int, number: int, length: int) -> ClaimKey | None:
    for bits in range(length, -1, -1):
        spare = _BITS[family] - bits
        key = ClaimKey(ClaimKind.ROUTE, family, number >> spare << spare, bits)
        if key in picture.present or key in picture.wanted:
            return key
    return None


def _steps(picture: AgentView, key: ClaimKey) -> Iterator[ClaimKey]:
    step: ClaimKey | None = key
    while step is not None:
        yield step
        known = picture.present.get(step) or picture.wanted.get(step)
        step = None if known is None else leans_on(step, known.value.shape)


def _known(picture: AgentView, key: ClaimKey) -> Owned[Claim]:
    return picture.present.get(key) or picture.wanted[key]


def _leads(picture: AgentView, steps: list[ClaimKey]) -> str:
    shapes = [_known(picture, key).value.shape for key in steps if key in picture.present or key in picture.wanted]
    match shapes:
        case [LocalRoute(interface=interface)]:
            return f"to interface {interface}"
        case [RemoteRoute(via=via), NexthopEntry(mode=Mode.DIRECT)]:
            return f"directly to {via}"
        case [RemoteRoute(), NexthopEntry(), _, FdbEntry(to=host)]:
            return f"through the tunnel to {host}"
        case [RemoteRoute(via=via), *_]:
            return f"nowhere yet: not all is there that the way to {via} takes"
    return "nowhere"
