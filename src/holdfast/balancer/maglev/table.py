"""Maglev: builds the table of buckets from backends and weights, the same on every machine with the same backends.

Each backend walks the buckets in an order of its own, which follows from its identity alone (address and port, all of
an IPv6 address, B13), and takes the next free bucket when its turn comes. Turns are dealt by weight against a constant
quantum (B12): a weight of 100 takes a turn in every round, one of 25 in every fourth, whatever the other weights are.
So a changed weight moves its own share and little else, the order of the input does not matter, and every backend has a
turn in the first round: a weight above zero means at least one bucket.

The walk is plain Python over lists, which costs less than vectors while free buckets are found quickly; for the last
buckets, where a walk would be long, the step at which each backend would reach them is computed.

This base table is made of configured weights, and changes with the configuration only. Who serves the buckets of a
backend that is down or thinned is decided on top of it (`stand_ins`), so that health moves nobody else's buckets.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.balancer.maglev import stand_ins

QUANTUM = 100
"""Weight that takes a turn in every round: the largest that can be configured."""

ALGORITHM = 2
"""Version of the way from weights to buckets. Balancers with different versions have different tables."""
_PAIRS = 50_000  # (backend, bucket) pairs that cost less to calculate than to walk


class BackendId(NamedTuple):
    """Identity of a backend on every balancer: family, address as a number, port. Sorts numerically."""

    family: int
    address: int
    port: int


class BucketWeight(NamedTuple):
    """Weight of a backend in the base table, and the weight with which it serves at present."""

    base: int
    effective: int


Table = NDArray[np.int32]
"""Per bucket the index of its backend among the sorted members of the base; -1 where nobody serves."""

Weights = Mapping[BackendId, BucketWeight]


def in_full(weights: Mapping[BackendId, int]) -> dict[BackendId, BucketWeight]:
    """Weights with which all backends serve their whole share."""
    return {backend: BucketWeight(weight, weight) for backend, weight in weights.items()}


class TooManyBackends(ValueError):
    """More backends than buckets."""


def table(weights: Weights, size: int) -> tuple[tuple[BackendId, ...], Table]:
    """Return the members of the base in order, and the table with their indexes. Read-only: it may be shared."""
    members = _in_order({backend: weight.base for backend, weight in weights.items()})
    return tuple(backend for backend, _ in members), _served(tuple((one, weights[one]) for one, _ in members), size)


def base_table(weights: Mapping[BackendId, int], size: int) -> tuple[tuple[BackendId, ...], Table]:
    """Return the backends of weight above zero in order, and the table in which all of them serve."""
    members = _in_order(weights)
    return tuple(backend for backend, _ in members), _built(members, size)


def _in_order(weights: Mapping[BackendId, int]) -> tuple[tuple[BackendId, int], ...]:
    """Members of the base in numeric order, which decides the order of turns in each round (protection: B2)."""
    return tuple(sorted((backend, weight) for backend, weight in weights.items() if weight > 0))


@lru_cache(maxsize=64)
def _served(members: tuple[tuple[BackendId, BucketWeight], ...], size: int) -> Table:
    base = _built(tuple((backend, weight.base) for backend, weight in members), size)
    keep = [stand_ins.keep_of(weight.base, weight.effective) for _, weight in members]
    if all(share == stand_ins.FULL for share in keep):
        return base
    seeds = np.asarray([stand_ins.seed(backend) for backend, _ in members], np.uint64)
    weights = np.asarray([weight.base for _, weight in members], np.uint64)
    served = stand_ins.with_stand_ins(base, seeds, weights, np.asarray(keep, np.uint64))
    served.flags.writeable = False
    return served


@lru_cache(maxsize=64)
def _built(weights: tuple[tuple[BackendId, int], ...], size: int) -> Table:
    if len(weights) > size:
        raise TooManyBackends(
            f"{len(weights):,} backends do not fit a table of {size:,} buckets: choose a larger table_size"
        )
    if not weights:
        empty = np.full(size, -1, np.int32)
        empty.flags.writeable = False
        return empty
    walks = [walk(backend, size) for backend, _ in weights]
    built = _filled(walks, _turns([weight for _, weight in weights], size), size)
    built.flags.writeable = False
    return built


def forget_tables() -> None:
    """Drop the tables that are kept for the next caller."""
    _built.cache_clear()
    _served.cache_clear()


def walk(backend: BackendId, size: int) -> tuple[int, int]:
    """Start and step width of a backend's walk through the buckets (protection: B13)."""
    packed = bytes([backend.family]) + backend.address.to_bytes(16, "big") + backend.port.to_bytes(2, "big")
    digest = hashlib.blake2b(packed, digest_size=16, person=b"holdfast-maglev").digest()
    return int.from_bytes(digest[:8], "big") % size, int.from_bytes(digest[8:], "big") % (size - 1) + 1


def _turns(weights: list[int], size: int) -> list[int]:
    """Order of turns, `size` of them: the n-th turn of a backend is in round n × quantum / weight (protection: B12)."""
    shares = np.asarray(weights, np.int64)
    rounds = -(-size * QUANTUM // int(shares.sum())) + 1
    counts = rounds * shares // QUANTUM + 1
    who = np.repeat(np.arange(len(weights)), counts)
    nth = np.arange(len(who)) - np.repeat(np.cumsum(counts) - counts, counts)
    when = nth * QUANTUM // shares[who]
    order = np.argsort(when * len(weights) + who, kind="stable")[:size]
    turns: list[int] = who[order].tolist()
    return turns


def _filled(walks: list[tuple[int, int]], turns: list[int], size: int) -> Table:
    at = [start for start, _ in walks]
    steps = [step for _, step in walks]
    owners = [-1] * size
    taken = [False] * size  # a list: indexing it is faster than indexing bytes
    tail = min(size // 16, max(math.isqrt(_PAIRS), _PAIRS // len(walks)))
    for who in turns[: size - tail]:
        bucket, step = at[who], steps[who]
        while taken[bucket]:
            bucket += step
            if bucket >= size:
                bucket -= size
        taken[bucket] = True
        owners[bucket] = who
        at[who] = bucket
    built = np.asarray(owners, np.int32)
    _fill_tail(built, walks, turns[size - tail :], size)
    return built


def _fill_tail(built: Table, walks: list[tuple[int, int]], turns: list[int], size: int) -> None:
    """Continue the walk for the last buckets: a backend reaches bucket b at step (b - start) / width, modulo size."""
    free = np.nonzero(built < 0)[0]
    if not free.size:
        return
    left = set(free.tolist())
    who_turns = sorted(set(turns))
    start = np.asarray([walks[who][0] for who in who_turns], np.int64)
    inverse = np.asarray([pow(walks[who][1], -1, size) for who in who_turns], np.int64)
    reached = (free[None, :] - start[:, None]) % size * inverse[:, None] % size
    walks_left = dict(zip(who_turns, map(iter, free[np.argsort(reached, axis=1)].tolist()), strict=True))
    for who in turns:
        bucket = next(bucket for bucket in walks_left[who] if bucket in left)
        left.remove(bucket)
        built[bucket] = who
