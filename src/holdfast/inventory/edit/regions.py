"""Retirement of a region: its fence and its marks leave the inventory. The operator's side; objects are not touched."""

from __future__ import annotations

from sqlalchemy import Engine, delete

from holdfast.inventory.changes import EditRefused
from holdfast.inventory.sql.engine import writing
from holdfast.inventory.sql.schema import FENCE, MARKS
from holdfast.model.base.region import Region


def retire_region(engine: Engine, region: Region) -> None:
    """Forget that leaders of a region have written here. One that still runs is deposed. Raises `EditRefused`."""
    with writing(engine) as connection:
        known = connection.execute(delete(FENCE).where(FENCE.c.region == region.segment)).rowcount
        connection.execute(delete(MARKS).where(MARKS.c.region == region.segment))
        if not known:
            raise EditRefused(f"{region.segment} is no region of this inventory: nothing to retire")
