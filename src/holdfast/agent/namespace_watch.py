"""Watches for a network namespace that was deleted and created again under its name.

The sockets of the dataplane keep the old one alive: without this the agent would go on programming a kernel that
nothing uses any more, and report that all is well. The worker ends, and its next run opens the new one; what the
journal has and the new namespace lacks is programmed again.
"""

from __future__ import annotations

import asyncio

import structlog

from holdfast.model.base.time import Duration
from holdfast.netlink.netns import identity

log = structlog.get_logger(__name__)

INTERVAL = Duration(seconds=1)


class NamespaceWatch:
    """Create it before the dataplane is opened there."""

    def __init__(self, name: str | None) -> None:
        """Without a name, the agent is in its own namespace, which lives as long as it does."""
        self._name = name
        self._opened = None if name is None else identity(name)

    def is_another(self) -> bool:
        """Return whether the name stands for another namespace by now. One that only lost its name may be in use."""
        if self._name is None:
            return False
        return identity(self._name) not in (None, self._opened)

    async def run(self) -> None:
        """Return once the namespace has been created again."""
        while not self.is_another():  # noqa: ASYNC110 -- the kernel sets no event of ours
            await asyncio.sleep(INTERVAL.total_seconds())
        log.warning("network namespace was created again; the worker starts again in it", namespace=self._name)
