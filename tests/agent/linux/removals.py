"""The agent on Linux without one of its protections, for the second run of `@fault` tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.config.sections.linux import Linux
from holdfast.netlink.routes import DESTINATION, DEVICE, FIXED, NEW, TABLE, Mark, Route
from holdfast.netlink.wire import Attribute, Batch, Flag, Layout

FIRST_GATEWAY = 0x0A800000
TUNNEL = {"device": 0}
"""Where `by_gateway` sends to; a test says it."""
_GATEWAY = 5
_ONLINK = 4
_CLASSIC = Layout(
    FIXED,
    (
        Attribute("table", TABLE, "=u4"),
        Attribute("destination", DESTINATION, "V4"),
        Attribute("gateway", _GATEWAY, ">u4"),
        Attribute("device", DEVICE, "=u4"),
    ),
)


async def nothing_there(_self: object, _after: object) -> tuple[list[object], None]:
    """At its start the agent knows of nothing that an earlier one has left."""
    return [], None


def whosever(settings: Linux) -> Mark:
    """Everything in our table is ours, whatever it is marked with."""
    return Mark(settings.table, 0)


def by_gateway(wanted: Sequence[Route], mark: Mark, *, replace: bool) -> Batch:
    """Each route with a gateway of its own, as `ip route` makes them, without nexthop objects."""
    made = _CLASSIC.batch(len(wanted), NEW, Flag.CREATE | (Flag.REPLACE if replace else Flag.EXCLUSIVE))
    made["family"], made["protocol"], made["table"], made["kind"] = 2, mark.protocol, mark.table, 1
    made["route_flags"], made["length_bits"], made["device"] = _ONLINK, 32, TUNNEL["device"]
    made["destination"] = np.frombuffer(b"".join(route.destination for route in wanted), "V4")
    made["gateway"] = [FIRST_GATEWAY + route.nexthop - Linux().first_nexthop for route in wanted]
    return made
