"""Planted bugs of the whole fleet: each removes one protection, by one small patch. The seeds must find every one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest.mock import patch

from holdfast.reconcile.ledger import Ledger
from holdfast.runtime.daemon import pulse
from holdfast.server.election import predecessor
from holdfast.server.status.target import ObservedTarget
from holdfast.server.syncer.outbox import Outbox
from holdfast.store.transport.endpoints import RevisionFloor
from holdfast.store.watch import listing
from holdfast.store.watch.watch import Watch
from tests.chaos import without_protection as chaos_without
from tests.server.syncer import without_protection as syncer_without
from tests.sim import election_bugs
from tests.store.mirror import test_mirror
from tests.store.watch import test_watch

Bug = Callable[[], contextlib.AbstractContextManager[object]]


def _replaced(owner: Any, name: str, by: Any) -> Bug:
    return lambda: patch.object(owner, name, by)


def _returning(owner: Any, name: str, value: Any) -> Bug:
    return _replaced(owner, name, lambda *_args, **_options: value)


_ELECTION = (
    "no fence",
    "no comparison of the term in the renewal",
    "a resignation deletes whatever key is there",
    "a campaign does not compare for absence",
)
"""Bugs of the election that this world finds as well."""

BUGS: Final[Mapping[str, Bug]] = {
    **{name: election_bugs.BUGS[name] for name in _ELECTION},
    "a worker that ended is not started again": _returning(pulse, "has_exited", False),
    "the outbox is not read": _replaced(Outbox, "fetch", syncer_without.nothing_noted),
    "outbox rows are settled when they are read": _replaced(Outbox, "fetch", chaos_without.forgotten_when_read),
    "a failed change is not tried again": _returning(Ledger, "due", ()),
    "a watch that etcd cancelled is taken for a quiet one": _returning(Watch, "_cancellation", None),
    "a watch believes every member": _replaced(Watch, "_probe", test_watch.trust_any_member),
    "half a list is taken for a list": _replaced(listing, "full_list", test_mirror.half_a_list),
    "a member that fell behind is believed": _returning(RevisionFloor, "objection", None),
    "an uncertain status write is believed": _returning(ObservedTarget, "_note_uncertain", None),
    "every predecessor is taken for dead": _returning(predecessor, "certainly_dead", True),
}
