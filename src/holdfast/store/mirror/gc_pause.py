"""Keeping the garbage collector from stopping the event loop while a hundred thousand objects are made.

Each of its full collections walks everything that exists; during a large snapshot that blocks the loop for 230–400 ms
at a time. So it rests while the snapshot is taken in, and afterwards never looks at those objects again: they live as
long as the process, and go by reference count when they are replaced.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

WORTH_IT = 10_000

_resting = 0
"""How many blocks are under way: the collector is one per process."""


@contextmanager
def resting(objects: int, *, lasting: bool = True) -> Iterator[None]:
    """No collections inside the block, if that many objects are worth it. Blocks may overlap in time.

    Not `lasting`, most of what is made inside is gone soon after: it is looked at once, if it is still there, and what
    was there before is looked at no more often than without it.
    """
    global _resting
    if objects < WORTH_IT or (_resting == 0 and not gc.isenabled()):
        yield
        return
    _resting += 1
    gc.disable()
    try:
        yield
    finally:
        _resting -= 1
        if lasting:
            gc.freeze()
        if _resting == 0:
            gc.enable()
