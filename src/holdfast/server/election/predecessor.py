"""Whether the process behind a key certainly is no more, so that its key need not wait for its lease.

A pid that is gone proves something only where that pid could be seen: in the same boot of the same kernel, and in the
same PID namespace (C12: a container's live leader was taken for dead because its pid meant nothing outside).
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.control.leader import Leader
from holdfast.model.control.server import Server


def certainly_dead(other: Leader | Server, me: Leader, is_gone: Callable[[int], bool]) -> bool:
    """False also when it cannot be known from here: then the lease decides."""
    return same_kernel(other, me) and is_gone(other.pid)


def same_kernel(other: Leader | Server, me: Leader) -> bool:
    """Whether its pid means here what it meant to it; never when it did not say where it ran."""
    theirs = (other.boot_id, other.pid_namespace)
    return all(theirs) and theirs == (me.boot_id, me.pid_namespace)
