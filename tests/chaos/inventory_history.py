"""History checker of the inventory: follows every acknowledged change through etcd's revisions.

Compares the history of each key in etcd with its history in the inventory. In the end they agree (checked elsewhere);
until then nothing may appear that the inventory never wanted, and nothing may go back: a version never follows one
that superseded it in the inventory. Versions that were superseded before they were written may be skipped.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence

import msgspec
from sqlalchemy import Engine, select

from holdfast.inventory.sql.engine import reading
from holdfast.inventory.sql.schema import CHANGES
from holdfast.lab.fleet.history_check import read_events
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec

KeyHistory = Sequence[EndpointSpec | None]
"""The successive values of a key; None where it did not exist."""


def violations(engine: Engine, url: str, region: Region) -> Sequence[str]:
    """Return every violation on the way of endpoints from the inventory to the store, one sentence each."""
    wanted, stored = wanted_histories(engine, region), stored_histories(url, region)
    assert stored, "nothing was ever written: this proves nothing"
    found = ((key, went_back([None, *wanted.get(key, ())], life)) for key, life in stored.items())
    return [f"{key.decode()}: {wrong}" for key, wrong in found if wrong is not None]


def lost(engine: Engine, acknowledged: Collection[int]) -> Sequence[int]:
    """Return acknowledged revisions that the inventory no longer has."""
    with reading(engine) as connection:
        known = set(connection.execute(select(CHANGES.c.revision)).scalars())
    return sorted(set(acknowledged) - known - {0})


def wanted_histories(engine: Engine, region: Region) -> Mapping[bytes, KeyHistory]:
    """Return what the inventory wanted at each key, in the order of its revisions."""
    lives: dict[bytes, list[EndpointSpec | None]] = {}
    with reading(engine) as connection:
        mine = select(CHANGES).where(CHANGES.c.kind == ENDPOINT.name).order_by(CHANGES.c.revision)
        rows = connection.execute(mine).all()
    for row in rows:
        spec = _spec(row.new)
        key = None if spec is None else ENDPOINT.key(region, spec.name)
        if row.old_key is not None and row.old_key != key:
            lives.setdefault(row.old_key, []).append(None)
        if key is not None:
            lives.setdefault(key, []).append(spec)
    return lives


def stored_histories(url: str, region: Region) -> Mapping[bytes, KeyHistory]:
    """Return every version that each key ever had in the store."""
    lives: dict[bytes, list[EndpointSpec | None]] = {}
    for key, event in read_events(url, ENDPOINT.prefix(region)):
        value = None if event.get("type") == "DELETE" else base64.b64decode(event["kv"]["value"])
        lives.setdefault(key, []).append(_spec(value))
    return lives


def went_back(wanted: KeyHistory, stored: KeyHistory) -> str | None:
    """Return what is wrong with a key's history in the store, or None."""
    at = 0
    for version, spec in enumerate(stored, 1):
        later = next((place for place in range(at, len(wanted)) if wanted[place] == spec), None)
        if later is None:
            what = "was deleted" if spec is None else f"became {spec}"
            return f"its version {version} {what}, which nobody wanted any more, or ever"
        at = later
    return None


def _spec(doc: bytes | None) -> EndpointSpec | None:
    return None if doc is None else msgspec.json.decode(doc, type=Endpoint).spec
