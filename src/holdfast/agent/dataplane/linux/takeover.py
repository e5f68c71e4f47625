"""Takeover: gives the objects of an earlier run, with another table or protocol number, the marks of this one.

In place where the table stays, and otherwise created before it is deleted, so that no packet is lost: what a route says
is not changed here. Afterwards all of it is ours like any other, and the loop compares it. What the kernel refuses
stays as it is and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import TypeVar

from holdfast.agent.claims import ClaimKey, ClaimKind
from holdfast.agent.dataplane.linux.context import LinuxContext, sentence
from holdfast.agent.dataplane.linux.snapshot import SOCKET_FAMILIES
from holdfast.agent.dataplane.marks import KernelMark, kernel_mark
from holdfast.config.sections.linux import MAIN_TABLE
from holdfast.netlink import neighbours, nexthops, routes, rules
from holdfast.netlink.addresses import SIZES
from holdfast.netlink.routes import Route, RouteMark
from holdfast.netlink.socket import is_gone
from holdfast.netlink.wire import Refusal
from holdfast.runtime.cooperative import at_once

T = TypeVar("T")

IsKnown = Callable[[ClaimKey], bool]
"""Returns whether the journal has an object."""
_AT_ONCE = 1_000


def take_over(context: LinuxContext, former: KernelMark, is_known: IsKnown, families: Iterable[int]) -> list[str]:
    """Take over what carries these marks; return what the kernel refused, in sentences. Raises OSError.

    In the main table another program may use the protocol number, too: only what the journal knows is ours there.
    """
    refused = _nexthops(context, former)
    for family in families:
        refused += _neighbours(context, former, family)
        refused += _routes(context, former, family, is_known)
    return refused


def _nexthops(context: LinuxContext, former: KernelMark) -> list[str]:
    protocol = context.settings.protocol
    if former.protocol == protocol:
        return []
    found = [one for one in nexthops.dump(context.kernel) if one.protocol == former.protocol and one.gateway]
    refused = []
    for size in (4, 16):
        for some in _portions([one._replace(protocol=protocol) for one in found if len(one.gateway) == size]):
            batch = nexthops.additions(some, replace=True)
            refused += [f"nexthop {some[one.index].id}: {_why(one)}" for one in context.kernel.transact(batch)]
    return refused


def _neighbours(context: LinuxContext, former: KernelMark, family: int) -> list[str]:
    device, refused = context.devices.tunnel(family), []
    if device is None or former.protocol == context.settings.protocol:
        return []
    read = neighbours.neighbours(context.kernel, device.number, former.protocol, SOCKET_FAMILIES[family])
    addresses, macs = at_once(read)
    octets = (number.to_bytes(SIZES[family], "big") for number in addresses)
    for some in _portions(map(neighbours.Neighbour, octets, macs)):
        batch = neighbours.neighbour_additions(some, device.number, context.settings.protocol)
        refused += [f"neighbour on {device.name}: {_why(one)}" for one in context.kernel.transact(batch)]
    return refused


def _routes(context: LinuxContext, former: KernelMark, family: int, is_known: IsKnown) -> list[str]:
    """First the routes, then the rule that leads to them; what is there twice for a moment goes in the same order."""
    before, now = RouteMark(former.table, former.protocol), kernel_mark(context.settings)
    after = RouteMark(now.table, now.protocol)
    found = [one for one in _read(context, before, family) if _is_ours(one, former, family, is_known)]
    there = {one[:2] for one in _read(context, after, family)}  # by an earlier run of this that was cut off
    stays, refused = former.table == now.table, []
    for some in _alike(one for one in found if one[:2] not in there):
        answers = context.kernel.transact(routes.additions(some, after, replace=stays))
        refused += [f"route {_key(some[one.index], family).text}: {_why(one)}" for one in answers]
    if refused:
        return refused  # the old ones still carry packets
    _rule(context, former, family)
    for some in _portions([] if stays else found):
        answers = context.kernel.transact(routes.removals(some, before))
        refused += [f"route in table {former.table}: {_why(one)}" for one in answers if not is_gone(one.errno)]
    return refused


def _rule(context: LinuxContext, former: KernelMark, family: int) -> None:
    settings, kernel = context.settings, context.kernel
    if settings.table != MAIN_TABLE:
        wanted = rules.Rule(SOCKET_FAMILIES[family], settings.priority, settings.table)
        if wanted not in rules.dump(kernel, wanted.family, settings.protocol):
            rules.add(kernel, wanted, settings.protocol)
    for one in rules.dump(kernel, SOCKET_FAMILIES[family], former.protocol):
        if one.table == former.table:
            rules.remove(kernel, one, former.protocol)


def _read(context: LinuxContext, mark: RouteMark, family: int) -> list[Route]:
    size, table = SIZES[family], routes.dump(context.kernel, mark, SIZES[family])
    return [
        Route(number.to_bytes(size, "big"), length, nexthop, 0 if nexthop else device, metric, _source(source, size))
        for number, length, nexthop, device, metric, source in zip(*table, strict=True)
    ]


def _alike(found: Iterable[Route]) -> Iterator[list[Route]]:
    """Routes in portions of one form, as requests have to be."""
    for _, alike in groupby(sorted(found, key=_form), key=_form):
        yield from _portions(alike)


def _form(one: Route) -> tuple[bool, bool]:
    return bool(one.nexthop), bool(one.source)


def _source(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big") if number else b""


def _is_ours(one: Route, former: KernelMark, family: int, is_known: IsKnown) -> bool:
    return former.table != MAIN_TABLE or is_known(_key(one, family))  # protection: N14


def _key(one: Route, family: int) -> ClaimKey:
    return ClaimKey(ClaimKind.ROUTE, family, int.from_bytes(one.destination, "big"), one.length)


def _why(refusal: Refusal) -> str:
    return sentence(refusal.errno, refusal.text)


def _portions(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
