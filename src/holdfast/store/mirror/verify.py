"""Agreement: a fresh, linearizable list says exactly what a mirror shows. Absence that much hangs on is proven by it.

A busy fleet changes while it is listed, and a watch is a moment behind: what differs is looked up by itself, until both
say the same. A mirror that does not come to agree is behind, and nothing may be concluded from what it lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast.model.base.time import Duration
from holdfast.reconcile.change import Away
from holdfast.store.api import Get, Store, StoreError
from holdfast.store.mirror.mirror import Mirror

PAUSE = Duration(milliseconds=100)
LOOKS = 10
MOST = 1_000
"""Keys that are looked up one by one; a mirror that lacks more is far behind."""
_PER_CALL = 100
_PER_PAGE = 10_000
"""Keys that are compared at a time, so that a large list does not block the event loop."""


async def agree(store: Store, prefix: bytes, mirror: Mirror[Any]) -> None:
    """Returns when the mirror shows that prefix as the store has it. Raises `Away`."""
    try:
        differing = await _listed_otherwise(store, prefix, mirror)
        for _ in range(LOOKS):
            if not differing:
                return
            if len(differing) > MOST:
                break
            await asyncio.sleep(PAUSE.total_seconds())
            found = await _looked_up(store, differing)
            differing = [key for key in differing if mirror.mod_revision(key) != found.get(key, 0)]
    except StoreError as error:
        raise Away("store", str(error)) from error
    if differing:
        raise Away("store", f"its watch is behind its list, as with {differing[0].decode(errors='backslashreplace')}")


async def _listed_otherwise(store: Store, prefix: bytes, mirror: Mirror[Any]) -> list[bytes]:
    """The keys that a list shows at another revision than the mirror, or that only one of them has."""
    listed: set[bytes] = set()
    differing: list[bytes] = []
    async for page in store.list(prefix, page=_PER_PAGE, keys_only=True):
        listed.update([entry.key for entry in page.entries])
        differing += [entry.key for entry in page.entries if mirror.mod_revision(entry.key) != entry.mod_revision]
    shown = [*mirror.objects, *mirror.bad]
    for start in range(0, len(shown), _PER_PAGE):
        differing += [key for key in shown[start : start + _PER_PAGE] if key not in listed]
        await asyncio.sleep(0)
    return sorted(set(differing))


async def _looked_up(store: Store, keys: Sequence[bytes]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for start in range(0, len(keys), _PER_CALL):
        answer = await store.txn([], [Get(key) for key in keys[start : start + _PER_CALL]])
        found |= {one.key: one.mod_revision for each in answer.results if not isinstance(each, int) for one in each}
    return found
