"""Verification of a mirror against a fresh, linearizable list: proves absence before many deletes.

A busy fleet changes while it is listed, and a watch lags a moment: keys that differ are read again one by one until
both agree. A mirror that does not come to agree is behind, and nothing may be concluded from what it lacks.
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
ROUNDS = 10
MOST = 1_000
"""Keys that are read again; a mirror that differs in more is far behind."""
_PER_CALL = 100
_PER_PAGE = 10_000
"""Keys that are compared at a time, so that a large list does not block the event loop."""


async def verify_mirror(store: Store, mirror: Mirror[Any]) -> None:
    """Return once the mirror agrees with the store on its prefixes. Raises `Away` if it does not."""
    try:
        differing = await _differing(store, mirror)
        for _ in range(ROUNDS):
            if not differing:
                return
            if len(differing) > MOST:
                break
            await asyncio.sleep(PAUSE.total_seconds())
            found = await _read_revisions(store, differing)
            differing = [key for key in differing if mirror.mod_revision(key) != found.get(key, 0)]
    except StoreError as error:
        raise Away("store", str(error)) from error
    if differing:
        example = differing[0].decode(errors="backslashreplace")
        raise Away("store", f"the watch is behind a fresh list, for example at {example}")


async def _differing(store: Store, mirror: Mirror[Any]) -> list[bytes]:
    """Return the keys that list and mirror have at different revisions, or that only one of them has."""
    listed: set[bytes] = set()
    differing: list[bytes] = []
    for prefix in mirror.prefixes:
        async for page in store.list(prefix, page=_PER_PAGE, keys_only=True):
            listed.update([entry.key for entry in page.entries])
            differing += [one.key for one in page.entries if mirror.mod_revision(one.key) != one.mod_revision]
    shown = [*mirror.objects, *mirror.bad]
    for start in range(0, len(shown), _PER_PAGE):
        differing += [key for key in shown[start : start + _PER_PAGE] if key not in listed]
        await asyncio.sleep(0)
    return sorted(set(differing))


async def _read_revisions(store: Store, keys: Sequence[bytes]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for start in range(0, len(keys), _PER_CALL):
        answer = await store.txn([], [Get(key) for key in keys[start : start + _PER_CALL]])
        found |= {one.key: one.mod_revision for each in answer.results if not isinstance(each, int) for one in each}
    return found
