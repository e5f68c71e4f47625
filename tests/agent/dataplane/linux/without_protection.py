"""The agent on Linux without one of its protections, for the second run of `@fault` tests."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

import numpy as np

from holdfast.agent.claims import ClaimKey
from holdfast.agent.dataplane.linux.devices import Devices
from holdfast.agent.reconciler import AgentReconciler
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink.routes import DESTINATION, DEVICE, FIXED, NEW, TABLE, Route, RouteMark
from holdfast.netlink.socket import DumpInterrupted
from holdfast.netlink.wire import Attribute, Batch, MessageFlag, RequestLayout

read_devices = Devices.read
FIRST_GATEWAY = 0x0A800000
TUNNEL = {"device": 0}
"""Device that `by_gateway` uses; set by a test."""
_GATEWAY = 5
_ONLINK = 4
_CLASSIC = RequestLayout(
    FIXED,
    (
        Attribute("table", TABLE, "=u4"),
        Attribute("destination", DESTINATION, "V4"),
        Attribute("gateway", _GATEWAY, ">u4"),
        Attribute("device", DEVICE, "=u4"),
    ),
)


async def nothing_there(_self: object, _after: object) -> tuple[list[object], None]:
    """At its start the agent knows nothing that an earlier run left."""
    return [], None


def whosever(settings: LinuxSettings) -> RouteMark:
    """Everything in our table is ours, whatever its protocol number."""
    return RouteMark(settings.table, 0)


def by_gateway(wanted: Sequence[Route], mark: RouteMark, *, replace: bool) -> Batch:
    """Each route with a gateway of its own, as `ip route` makes them, without nexthop objects."""
    made = _CLASSIC.batch(
        len(wanted), NEW, MessageFlag.CREATE | (MessageFlag.REPLACE if replace else MessageFlag.EXCLUSIVE)
    )
    made["family"], made["protocol"], made["table"], made["kind"] = 2, mark.protocol, mark.table, 1
    made["route_flags"], made["length_bits"], made["device"] = _ONLINK, 32, TUNNEL["device"]
    made["destination"] = np.frombuffer(b"".join(route.destination for route in wanted), "V4")
    made["gateway"] = [FIRST_GATEWAY + route.nexthop - LinuxSettings().first_nexthop for route in wanted]
    return made


async def unhandled(self: AgentReconciler) -> Collection[ClaimKey] | None:
    """A kernel that cannot be read ends the worker."""
    return await self.target.dataplane.disturbed()


def forgetful(self: Devices) -> None:
    """An interrupted read of the devices is taken for their state."""
    with contextlib.suppress(DumpInterrupted):
        read_devices(self)
