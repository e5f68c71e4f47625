"""Deadlines: a wheel of ticks, because nearly every probe ends long before its deadline and is then simply forgotten.

Setting and forgetting a deadline cost nothing that grows with the number of probes. A deadline passes with the tick it
lies in, so up to one tick late, never early.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.balancer.probing.probe import Probe

_TICK_BITS = 23  # 8.4 ms, in nanoseconds
TICK = 1 << _TICK_BITS


class TimeoutWheel:
    def __init__(self) -> None:
        self._ticks: dict[int, list[Probe]] = {}
        self._swept = 0

    def set(self, flight: Probe, when: int) -> None:
        tick = when >> _TICK_BITS
        flights = self._ticks.get(tick)
        if flights is None:
            self._ticks[tick] = [flight]
        else:
            flights.append(flight)

    def passed(self, now: int) -> Iterator[Probe]:
        """Flights whose deadline has passed and that are still under way, in the order of their deadlines."""
        tick = now >> _TICK_BITS
        if tick == self._swept:
            return
        self._swept = tick
        for over in sorted(known for known in self._ticks if known < tick):
            for flight in self._ticks.pop(over):
                if flight.lane.flight is flight:
                    yield flight

    def next(self) -> int | None:
        """When the next deadline may pass."""
        return (min(self._ticks) + 1) << _TICK_BITS if self._ticks else None
