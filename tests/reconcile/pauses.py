"""Pauses for tests of gates, with times on the boot clock alone."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.model.base.time import Instant
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Pause

ROUTES = Scope(ScopeKind.WORKER, "routes")
_WALL = datetime(2026, 1, 1, tzinfo=UTC)


def a_pause(who: str, why: str, since: Instant, until: Instant | None = None, scope: Scope = ROUTES) -> Pause:
    end = None if until is None else _WALL + (until - since)
    return Pause(Intent(what=IntentKind.PAUSE, scope=scope, who=who, why=why, since=_WALL, until=end), since, until)
