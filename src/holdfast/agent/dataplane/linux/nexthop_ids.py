"""IDs of nexthop objects: which gateway has which, and which are free.

An ID is allocated once and stays with its gateway as long as the kernel holds the object; after a restart it is read
from the kernel. An ID that any program uses is not free. If a gateway has two objects of ours, it keeps the one with
the lower ID, and the others are duplicates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast.agent.claims import RemoteRoute
from holdfast.netlink.addresses import text


class NexthopIds:
    def __init__(self, first: int, before: NexthopIds | None = None) -> None:
        """`before` knows the same kernel at an earlier time: its `RemoteRoute` objects are reused."""
        self._taken: set[int] = set()
        self._next = first
        self._of: dict[bytes, int] = {}
        self.routes: dict[int, RemoteRoute] = {}
        """Shape of the routes by each of our IDs; routes by one ID share it."""
        self._duplicates: dict[bytes, list[int]] = {}
        self._earlier_routes: Mapping[bytes, RemoteRoute] = before._route_by_gateway if before is not None else {}
        self._route_by_gateway: dict[bytes, RemoteRoute] = {}
        self._sourced: dict[tuple[str, str], RemoteRoute] = before._sourced if before is not None else {}
        """Shapes of routes with a preferred source."""

    def reserve(self, number: int) -> None:
        """Mark an ID as used by another program."""
        self._taken.add(number)

    def record(self, gateway: bytes, number: int) -> bool:
        """Record a gateway that the kernel has under that ID; False if it already has a lower one."""
        self._taken.add(number)
        if gateway in self._of:
            self._duplicates.setdefault(gateway, []).append(number)
            return False
        self._of[gateway] = number
        self.routes[number] = self._route_by_gateway[gateway] = self._earlier_routes.get(gateway) or RemoteRoute(
            text(gateway)
        )
        return True

    def route(self, number: int, source: str) -> RemoteRoute | None:
        """Return the shape of a route by that ID with that preferred source."""
        plain = self.routes.get(number)
        if plain is None or not source:
            return plain
        known = self._sourced.get((plain.via, source))
        if known is None:
            known = self._sourced[plain.via, source] = RemoteRoute(plain.via, source)
        return known

    def of(self, gateway: bytes) -> int | None:
        """Return its ID, if it has one."""
        return self._of.get(gateway)

    def duplicates(self, gateway: bytes) -> Sequence[int]:
        """IDs of further objects for this gateway."""
        return self._duplicates.get(gateway, ())

    def allocate(self, gateway: bytes) -> int:
        """Return its ID, if necessary a new one."""
        known = self._of.get(gateway)
        if known is not None:
            return known
        while self._next in self._taken:
            self._next += 1
        self.record(gateway, self._next)
        return self._of[gateway]

    def drop_duplicates(self, gateway: bytes, numbers: Collection[int]) -> None:
        """Record that these further objects are gone."""
        self._taken.difference_update(numbers)
        left = [number for number in self.duplicates(gateway) if number not in numbers]
        if left:
            self._duplicates[gateway] = left
        else:
            self._duplicates.pop(gateway, None)

    def free(self, gateway: bytes) -> None:
        """Record that the object is gone. Its ID is used again, but after all others."""
        number = self._of.pop(gateway, None)
        if number is not None:
            del self.routes[number]
            del self._route_by_gateway[gateway]
            self._taken.discard(number)
