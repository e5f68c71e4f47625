"""Replacements for protections that fault tests remove."""

from __future__ import annotations

from holdfast.inventory.sql.engine import DatabaseTimeouts


def sessions_that_may_idle(_limits: DatabaseTimeouts) -> str:
    return "-c lock_timeout=2000"
