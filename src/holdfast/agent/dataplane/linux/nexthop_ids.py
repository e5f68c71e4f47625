"""Numbers of nexthop objects: which gateway has which, and which is free.

A number is given once and stays with its gateway as long as the kernel holds the object; after a restart of the agent
it is read from the kernel. A number that anybody uses, ours or not, is not free. Should a gateway have two objects of
ours, the one with the lower number is its own, and the others are spare.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from holdfast.agent.claims import RemoteRoute
from holdfast.netlink.addresses import text


class NexthopIds:
    """Gateways and the numbers of their nexthop objects."""

    def __init__(self, first: int, before: NexthopIds | None = None) -> None:
        """`before` knows the same kernel at an earlier time: its ways need not be made again."""
        self._taken: set[int] = set()
        self._next = first
        self._of: dict[bytes, int] = {}
        self.ways: dict[int, RemoteRoute] = {}
        """The way of routes by each number of ours; routes by one number share it."""
        self._spare: dict[bytes, list[int]] = {}
        self._known: Mapping[bytes, RemoteRoute] = before._made if before is not None else {}
        self._made: dict[bytes, RemoteRoute] = {}

    def take(self, number: int) -> None:
        """Somebody uses that number."""
        self._taken.add(number)

    def learn(self, gateway: bytes, number: int) -> bool:
        """A gateway that is in the kernel under that number; False when it is there under a lower one already."""
        self._taken.add(number)
        if gateway in self._of:
            self._spare.setdefault(gateway, []).append(number)
            return False
        self._of[gateway] = number
        self.ways[number] = self._made[gateway] = self._known.get(gateway) or RemoteRoute(text(gateway))
        return True

    def of(self, gateway: bytes) -> int | None:
        """Its number, if there is one."""
        return self._of.get(gateway)

    def spare(self, gateway: bytes) -> Sequence[int]:
        """Those of further objects for it."""
        return self._spare.get(gateway, ())

    def give(self, gateway: bytes) -> int:
        """Its number, if need be a new one."""
        known = self._of.get(gateway)
        if known is not None:
            return known
        while self._next in self._taken:
            self._next += 1
        self.learn(gateway, self._next)
        return self._of[gateway]

    def drop_spare(self, gateway: bytes, numbers: Collection[int]) -> None:
        """These further objects are gone."""
        self._taken.difference_update(numbers)
        left = [number for number in self.spare(gateway) if number not in numbers]
        if left:
            self._spare[gateway] = left
        else:
            self._spare.pop(gateway, None)

    def free(self, gateway: bytes) -> None:
        """The object is gone. Its number may be given again, but not before all others."""
        number = self._of.pop(gateway, None)
        if number is not None:
            del self.ways[number]
            del self._made[gateway]
            self._taken.discard(number)
