"""Protocol of a dataplane: hides Linux, a file and the test fakes from the rest of the agent. Pure.

The objects in a dataplane carry our tag and outlive the agent. A dataplane returns all of them or none; it applies
exactly the changes it is given, in their order, with one answer each; it neither sees nor touches foreign objects
(N14). It knows nothing of sources, gates or journals. `holdfast.testing.fakes.kernel` is one in memory, and
`tests/agent/dataplane/conformance.py` has the cases that every dataplane must pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.agent.claims import Claim, ClaimKey, Shape
from holdfast.reconcile import Away, Change

ClaimChange = Change[ClaimKey, Claim]


class ReadInterrupted(Away):
    """The kernel changed while it was being read, again and again: the result is not complete, and is not used."""

    def __init__(self, what: str = "the kernel", why: str = "it changed while it was read, try again") -> None:
        super().__init__(what, why)


@dataclass(frozen=True, slots=True)
class HostDataplaneInfo:
    """Description of a dataplane, and the objects it needs itself."""

    name: str
    own: Mapping[ClaimKey, Shape] = field(default_factory=dict)
    """Objects that no peer asks for and that must be there all the same, such as the `ip rule` of each family."""
    sets_up_interfaces: bool = False
    """It makes this host the gateway of the workloads behind its interfaces."""
    guards: bool = False
    """It lets workloads send from their own addresses only, and accepts VXLAN from known hosts only."""
    uplinks: tuple[tuple[int, str], ...] = ()
    """Devices by which packets to workloads of a family arrive without a tunnel and without a peer of ours. The name is
    empty where no device has an address of this host."""


class Handler(Protocol):
    """Receives every change, and must acknowledge a delete before it is over."""

    @property
    def name(self) -> str: ...

    def ready(self) -> str | None:
        """Return None if it can take changes, else one sentence on what it waits for. Changes wait until then (N10)."""
        ...

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        """Apply these changes in this order; per change None, or one sentence why not. Raises `Away`, nothing else.

        Idempotent: a CREATE of what is there replaces it, a DELETE of what is not there is done. `change.old` is the
        whole object as last known, even in a delete that no source announced.
        """
        ...


class HostDataplane(Handler, Protocol):
    """Handler whose objects can be read back."""

    async def read(self, keys: Collection[ClaimKey] | None = None) -> Mapping[ClaimKey, Shape]:
        """Return the objects with our tag: all, or those of these keys. Raises `ReadInterrupted` or `Away` rather than
        return a part."""
        ...

    def blocked_by(self, key: ClaimKey, shape: Shape) -> str | None:
        """Return why this object cannot be there now although nothing is wrong (its interface does not exist); then it
        waits. What opens it, where it is not the interface coming up, follows after a colon.

        `disturbed` returns when this answer may have changed.
        """
        ...

    def routes_in(self, table: int) -> Set[ClaimKey]:
        """Return the routes of a table, of whatever program. Raises `Away`."""
        ...

    async def disturbed(self) -> Collection[ClaimKey] | None:
        """Return when objects may have been changed by another program, or may no longer be blocked: which; None
        means any."""
        ...

    def describe(self) -> HostDataplaneInfo: ...
