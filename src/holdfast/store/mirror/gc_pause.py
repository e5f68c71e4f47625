"""Pause of the garbage collector while many objects are created, so that it does not block the event loop.

A full collection walks every object that exists; during a large snapshot that blocks the loop for 230–400 ms at a time.
So the collector is disabled while the snapshot is applied, and the new objects are frozen afterwards: they live as long
as the process, and reference counting frees them when they are replaced. The state is per process, hence this module.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

WORTH_IT = 10_000

_pauses = 0
"""Number of blocks in progress."""


@contextmanager
def gc_paused(objects: int, *, lasting: bool = True) -> Iterator[None]:
    """Disable the collector inside the block if at least `WORTH_IT` objects are created. Blocks may overlap in time.

    With `lasting=False` most of these objects are gone soon: they are not frozen, so the next collection walks those
    that are left, and older objects are walked no more often than without the pause.
    """
    global _pauses
    if objects < WORTH_IT or (_pauses == 0 and not gc.isenabled()):
        yield
        return
    _pauses += 1
    gc.disable()
    try:
        yield
    finally:
        _pauses -= 1
        if lasting:
            gc.freeze()
        if _pauses == 0:
            gc.enable()
