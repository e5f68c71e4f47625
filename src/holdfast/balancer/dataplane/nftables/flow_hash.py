"""Flow hash: computes the bucket of a flow as the kernel does. Pure.

The kernel picks a bucket by jhash of the source address and port (of the address alone for a sticky VIP, and without
ports). The same computation here lets `explain flow` and tests predict the bucket.
"""

from __future__ import annotations

from holdfast.balancer.dataplane.api import Client
from holdfast.balancer.dataplane.nftables.ruleset import SEED
from holdfast.balancer.vip import VipSettings

_WORD = 0xFFFF_FFFF
_WIDTHS = {4: 4, 6: 16}
_MIXING = ((0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4))
_FINAL = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))


def bucket(source: Client, settings: VipSettings) -> int:
    """Bucket of a new flow from this client."""
    hashed = source.address.to_bytes(_WIDTHS[source.family], "big")
    if source.port and not settings.sticky:
        hashed += source.port.to_bytes(2, "big") + b"\0\0"
    return (jhash(hashed, SEED) * settings.table_size) >> 32


def jhash(data: bytes, seed: int) -> int:
    """Bob Jenkins' lookup3 as in the kernel, for data in whole words."""
    start = (0xDEADBEEF + len(data) + seed) & _WORD
    state = [start, start, start]
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
    while len(words) > 3:
        _add(state, words[:3])
        for to, by, bits in _MIXING:
            _mix(state, to, by, bits)
        words = words[3:]
    if words:
        _add(state, words)
        for to, by, bits in _FINAL:
            state[to] = ((state[to] ^ state[by]) - _rotated(state[by], bits)) & _WORD
    return state[2]


def _add(state: list[int], words: list[int]) -> None:
    for place, word in enumerate(words):
        state[place] = (state[place] + word) & _WORD


def _mix(state: list[int], to: int, by: int, bits: int) -> None:
    other = 3 - to - by
    state[to] = ((state[to] - state[by]) & _WORD) ^ _rotated(state[by], bits)
    state[by] = (state[by] + state[other]) & _WORD


def _rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _WORD
