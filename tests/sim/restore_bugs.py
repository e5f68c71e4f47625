"""Planted bugs: each removes one protection against restored stores and inventories. The simulation must find each.

with BUGS["a restored inventory is not noticed"]():
    first_failure(range(1_000), restore_scenario)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest.mock import patch

from holdfast.agent.gates.identity import StoreIdentityGate
from holdfast.runtime.store_guard import StoreGuard
from holdfast.server.identity import verdict
from holdfast.server.identity.gate import FleetIdentityGate
from holdfast.server.syncer.term import SyncerTerm
from tests.server.syncer import without_protection

Bug = Callable[[], contextlib.AbstractContextManager[object]]


def _replaced(owner: Any, name: str, by: Any) -> Bug:
    return lambda: patch.object(owner, name, by)


BUGS: Final[Mapping[str, Bug]] = {
    "a restored inventory is not noticed": _replaced(verdict, "inventory_went_back", lambda _sides: ""),
    "no marks are written": _replaced(SyncerTerm, "_write_mark", without_protection.no_mark),
    "marks are written to any inventory": _replaced(SyncerTerm, "_make_mark", without_protection.unchecked_mark),
    "the identity gate is open": _replaced(FleetIdentityGate, "judge", lambda *_judged: None),
    "everything was edited after the verdict": _replaced(FleetIdentityGate, "_edited_after", lambda *_change: True),
}

AGENT_BUGS: Final[Mapping[str, Bug]] = {
    "the agent's identity gate is open": _replaced(StoreIdentityGate, "judge", lambda *_judged, **_more: None),
    "an older claim replaces a newer one": _replaced(StoreIdentityGate, "_is_newer", lambda *_change: True),
    "a verdict ends before the watch has caught up": _replaced(StoreGuard, "is_released_by", lambda *_read: False),
}
