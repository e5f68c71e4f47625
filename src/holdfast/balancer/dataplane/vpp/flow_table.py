"""VPP's own table of new flows, to predict what a change moves. Pure.

VPP fills its table as Maglev does, with a power of two instead of a prime: each server takes part once per unit of its
weight, each time with another permutation, drawn by XXH64 from its address and the number of the unit. Units take turns
in the order of their numbers, then of addresses. A real VPP reports the same number of buckets for each server; which
buckets these are it does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from holdfast.balancer.maglev.churn import Churn
from holdfast.balancer.maglev.table import BackendId

_Weights = tuple[tuple[BackendId, int], ...]
_MASK = (1 << 64) - 1
_SEED = 0x9E3779B97F4A7C13
_PRIMES = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def xxh64(word: int, seed: int = _SEED) -> int:
    """XXH64 of one word of eight bytes."""
    one, two, three, four, five = _PRIMES
    hashed = seed + five + 8
    hashed ^= _rotated(word * two & _MASK, 31) * one & _MASK
    hashed = _rotated(hashed & _MASK, 27) * one + four & _MASK
    hashed = (hashed ^ hashed >> 33) * two & _MASK
    hashed = (hashed ^ hashed >> 29) * three & _MASK
    return hashed ^ hashed >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def table(weights: Mapping[BackendId, int], length: int) -> Sequence[BackendId | None]:
    """Return the server of each bucket."""
    units = sorted((number, backend) for backend, weight in weights.items() for number in range(weight))
    if not units:
        return [None] * length
    places, steps = [], []
    for number, backend in units:
        seed = xxh64(_word(backend) ^ number)
        steps.append((seed & 0xFFFFFFFF | 1) & length - 1)
        places.append(seed >> 32 & length - 1)
    found: list[BackendId | None] = [None] * length
    left = length
    while True:
        for turn, (_, backend) in enumerate(units):
            place, step = places[turn], steps[turn]
            while found[place] is not None:
                place = place + step & length - 1
            found[place] = backend
            places[turn] = place + step & length - 1
            left -= 1
            if not left:
                return found


def _word(backend: BackendId) -> int:
    """The address as VPP hashes it: the two halves of its 16 bytes, as the processor reads them."""
    octets = backend.address.to_bytes(16, "big")
    return int.from_bytes(octets[:8], "little") ^ int.from_bytes(octets[8:], "little")


def predicted(before: Mapping[BackendId, int], after: Mapping[BackendId, int], length: int) -> Churn:
    """Count the buckets that go to another server."""
    if before == after or not any(before.values()):
        return Churn(0, length)
    return Churn(_moved(_without_ports(before), _without_ports(after), length), length)


def _without_ports(weights: Mapping[BackendId, int]) -> _Weights:
    """VPP hashes addresses alone, so that all VIPs of the same servers have the same table, and it is made once."""
    return tuple(sorted((backend._replace(port=0), weight) for backend, weight in weights.items()))


@lru_cache(maxsize=1024)
def _moved(before: _Weights, after: _Weights, length: int) -> int:
    return sum(old != new for old, new in zip(_table(before, length), _table(after, length), strict=True))


@lru_cache(maxsize=32)
def _table(weights: _Weights, length: int) -> Sequence[BackendId | None]:
    return table(dict(weights), length)
