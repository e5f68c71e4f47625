"""Stand-ins: who serves the buckets of a backend that is down, paused or thinned. Pure, in integers only.

The base table gives each bucket an owner by the configured weights. `keep` says how much of its share a backend serves:
`FULL` for all of it, 0 for none, in between during slow start or with an operator's lower weight. For each bucket

1. its owner serves it if it is willing: a fixed 16-bit draw per bucket and backend is below its `keep`;
2. else the first willing owner among up to `DRAWS` other buckets, drawn by hash. A bucket drawn evenly belongs to a
   backend in proportion to its weight, so this costs nothing per backend;
3. else, when nearly all are out, the living share the bucket out by weighted rendezvous.

That is one order of preference per bucket, which depends on the base alone, and being willing is monotone in `keep`. So
lowering one backend moves only buckets that it serves, raising it moves buckets only to it, no other bucket ever moves,
and the result depends on the present state alone, not on the way to it. `DRAWS` is part of the algorithm, whose version
is in the digest. All arithmetic is modulo 2**64; there are no floats, so every machine computes the same.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from holdfast.balancer.maglev.table import BackendId

FULL = 1 << 16
"""Value of `keep` of a backend that serves its whole share."""
DRAWS = 32

Buckets = NDArray[np.int32]
Numbers = NDArray[np.uint64]

_U = np.uint64
_G1, _G2, _G3 = _U(0x9E3779B97F4A7C15), _U(0xD1B54A32D192ED03), _U(0x8CB92BA72F3D8DD7)
_PAIRS = 1 << 18  # pairs of bucket and backend per step of the rendezvous: keeps temporaries in the CPU's cache


@lru_cache(maxsize=1 << 14)
def seed(backend: BackendId) -> int:
    """Number of a backend in the draws, from its identity alone."""
    packed = bytes([backend.family]) + backend.address.to_bytes(16, "big") + backend.port.to_bytes(2, "big")
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8, person=b"holdfast-stand").digest(), "big")


def keep_of(base: int, effective: int) -> int:
    """Share of its buckets that a backend serves, rounded up: a weight above zero keeps some."""
    return min(FULL, -(-FULL * effective // base))


def with_stand_ins(base: Buckets, seeds: Numbers, weights: Numbers, keep: Numbers) -> Buckets:
    """Table of who serves each bucket: `base` where its owner does; all -1 when nobody serves."""
    if not keep.any():
        return np.full(len(base), -1, np.int32)
    served = base.copy()
    unsure = np.flatnonzero((keep < FULL)[base])
    left = unsure[~_willing(unsure, base[unsure], seeds, keep)]
    key, size = left.astype(_U) * _G1, _U(len(base))
    for draw in range(1, DRAWS + 1):
        if not left.size:
            return served
        drawn = base[(mixed(key + _U(draw * int(_G2) % 2**64)) >> _U(32)) * size >> _U(32)]
        willing = _willing(left, drawn, seeds, keep)
        served[left[willing]] = drawn[willing]
        left, key = left[~willing], key[~willing]
    if left.size:
        served[left] = _rendezvous(left, seeds, weights * keep)
    return served


def mixed(numbers: Numbers) -> Numbers:
    """Mix the bits of numbers, in place (the finalizer of splitmix64)."""
    numbers ^= numbers >> _U(30)
    numbers *= _U(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> _U(27)
    numbers *= _U(0x94D049BB133111EB)
    numbers ^= numbers >> _U(31)
    return numbers


def _willing(buckets: NDArray[np.int64], owners: Buckets, seeds: Numbers, keep: Numbers) -> NDArray[np.bool_]:
    quota = keep[owners]
    willing: NDArray[np.bool_] = quota == FULL
    drawing = np.flatnonzero((quota > 0) & ~willing)
    if drawing.size:
        drawn = mixed(seeds[owners[drawing]] ^ buckets[drawing].astype(_U) * _G1) >> _U(48)
        willing[drawing] = drawn < quota[drawing]
    return willing


def _rendezvous(buckets: NDArray[np.int64], seeds: Numbers, mass: Numbers) -> Buckets:
    """Share buckets out among the living, in proportion to their mass: the least score has the bucket."""
    living = np.flatnonzero(mass)
    seeds, mass = seeds[living], mass[living]
    best = np.empty(len(buckets), np.int32)
    rows = max(1, _PAIRS // len(living))
    for at in range(0, len(buckets), rows):
        key = buckets[at : at + rows].astype(_U) * _G1
        drawn = mixed(seeds[None, :] ^ key[:, None] ^ _G3) >> _U(32)
        score = ((_U(32 << 24) - log2_24(drawn + _U(1))) << _U(32)) // mass if len(living) > 1 else drawn
        best[at : at + rows] = living[score.argmin(axis=1)]
    return best


def log2_24(numbers: Numbers) -> Numbers:
    """2**24 * log2(x) for x from 1 to 2**32: a table of 4,097 cells with linear interpolation, in integers."""
    # The exponent of an integer below 2**53 is exact.
    exponent = np.frexp(numbers.astype(np.float64))[1].astype(_U) - _U(1)
    mantissa = (numbers << (_U(52) - exponent)) & _U((1 << 52) - 1)
    cell, rest = (mantissa >> _U(40)).astype(np.int64), (mantissa >> _U(16)) & _U(0xFFFFFF)
    low = _LOG_CELLS[cell]
    result: Numbers = (exponent << _U(24)) + low + ((_LOG_CELLS[cell + 1] - low) * rest >> _U(24))
    return result


def _log_cells() -> Numbers:
    """2**24 * log2(1 + i / 4096), bit by bit: square, and halve when it passes 2; never above 64 bits."""
    fixed = (np.arange(4096, dtype=_U) + _U(4096)) << _U(19)  # 31 bits behind the point
    cells = np.zeros(4097, _U)
    for bit in range(23, -1, -1):
        fixed = fixed * fixed >> _U(31)
        over = fixed >= _U(1 << 32)
        cells[:-1][over] += _U(1 << bit)
        fixed[over] >>= _U(1)
    cells[-1] = _U(1 << 24)
    return cells


_LOG_CELLS = _log_cells()
