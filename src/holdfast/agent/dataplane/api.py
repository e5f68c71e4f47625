"""The kernel as the agent sees it: behind one small protocol, so that Linux, memory and tests are the same to the core.

What a dataplane holds carries our tag and outlives the agent. It tells what is there, whole or not at all; it changes
exactly what it is told to, in the order it is told, with one answer for each; it sees and touches nothing that is not
ours (N14). It knows nothing of sources, gates or journals. `holdfast.testing.fakes.kernel` has one in memory, and
`tests/agent/dataplane/conformance.py` the cases that every dataplane must pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.agent.claims import Claim, ClaimKey, Shape
from holdfast.reconcile import Away, Change

ClaimChange = Change[ClaimKey, Claim]


class ReadInterrupted(Away):
    """The kernel changed while it was being read, again and again: what came is not all there is, and is not used."""

    def __init__(self, what: str = "the kernel", why: str = "it changed while it was read, try again") -> None:
        super().__init__(what, why)


@dataclass(frozen=True, slots=True)
class HostDataplaneInfo:
    """What a dataplane is, and what it needs of its own."""

    name: str
    own: Mapping[ClaimKey, Shape] = field(default_factory=dict)
    """Objects that no peer asks for and that must be there all the same, such as the `ip rule` of each family."""


class Handler(Protocol):
    """Something that has to hear of every change, and to acknowledge every deletion, before it is over."""

    @property
    def name(self) -> str: ...

    def ready(self) -> str | None:
        """None when it can take changes; until then one sentence on what it waits for. Changes wait that long (N10)."""
        ...

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        """Makes these changes in this order; per change None, or one sentence why not. Raises `Away`, nothing else.

        Idempotent: a CREATE of what is there replaces it, a DELETE of what is not there is done. `change.old` is the
        whole object as it was last known, also in a deletion that nobody announced.
        """
        ...


class HostDataplane(Handler, Protocol):
    """The handler that holds what can be read back."""

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        """What carries our tag: all of it, or what there is of these keys. Raises `ReadInterrupted` or `Away`
        instead of
        ever answering with a part."""
        ...

    def obstacle(self, key: ClaimKey, shape: Shape) -> str | None:
        """Why this cannot be there now although nothing is wrong (its interface does not exist); then it waits.

        When an obstacle may have come or gone, `disturbed` tells.
        """
        ...

    async def disturbed(self) -> Collection[ClaimKey] | None:
        """Returns when objects may have changed behind our back, or obstacles gone: which; None means any."""
        ...

    def describe(self) -> HostDataplaneInfo: ...
