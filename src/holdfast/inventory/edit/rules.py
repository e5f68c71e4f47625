"""What the inventory refuses: addresses that are taken, objects that would lose what they lean upon or that belong to
another region, and what the store would not take.

Each rule looks at the changes of one request and at what is there beside them, inside the transaction that makes the
change. Requests are made one after the other (`edit`), so that two cannot both be right alone and wrong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject
from holdfast.inventory.edit import balancing as serving
from holdfast.inventory.kinds import SERVING, addresses_of, belongs, host_of, network_named
from holdfast.inventory.sql.objects import called, portions
from holdfast.inventory.sql.schema import ADDRESSES, OBJECTS
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import Migration
from holdfast.model.fleet.network import NETWORK, Network

DOCUMENT_LIMIT = 1 << 20
"""Bytes. etcd refuses requests above 1.5 MiB, and a document is not all of one."""
KEY_LIMIT = 1_000
"""Bytes. PostgreSQL cannot index much longer ones."""


def refuse_repetition(wishes: Sequence[WantedObject]) -> None:
    """Two wishes about one object contradict one another, or one of them says nothing."""
    seen: set[tuple[str, str]] = set()
    for wish in wishes:
        if (wish.kind.name, wish.name) in seen:
            raise EditRefused(f"{wish.kind.name} {wish.name} is named twice in one request: name it once")
        seen.add((wish.kind.name, wish.name))


def refuse_foreign(wishes: Sequence[WantedObject], there: Mapping[tuple[str, str], Row[Any]], region: Region) -> None:
    """Another region's objects are not edited from here: neither syncer would know both of the keys."""
    for wish in wishes:
        sides: list[tuple[bytes, Any]] = [] if wish.thing is None else [(wish.key, wish.thing)]
        row = there.get((wish.kind.name, wish.name))
        if row is not None:
            sides.append((row.key, wish.kind.decode(row.key, row.doc) if wish.kind is HOST else None))
        if not all(belongs(wish.kind, key, thing, region) for key, thing in sides):
            here = f"region {region.name}" if region.name else "that of no region"
            raise EditRefused(
                f"{wish.kind.name} {wish.name} belongs to another region, and the configuration here is {here}: change "
                "it with the other's store.region; each region has a database of its own"
            )


def refuse(connection: Connection, changes: Sequence[Edit]) -> None:
    """Raises `EditRefused` for the first rule that these changes would break."""
    _refuse_oversized(changes)
    _refuse_taken(connection, changes)
    _refuse_left_behind(connection, changes)
    _refuse_nowhere(connection, changes)
    _refuse_off_network(connection, changes)
    _refuse_narrowed(connection, changes)
    _refuse_contradiction(connection, changes)


def _refuse_oversized(changes: Sequence[Edit]) -> None:
    """What the store or the database would refuse for ever is not taken into the inventory."""
    for edit in changes:
        if len(edit.key) > KEY_LIMIT:
            raise EditRefused(
                f"{edit.kind.name} {edit.name[:60]}… has a key of {len(edit.key):,} bytes, and {KEY_LIMIT:,} is the "
                "most: shorten its name"
            )
        if edit.new is not None and len(edit.new) > DOCUMENT_LIMIT:
            raise EditRefused(
                f"{edit.kind.name} {edit.name} takes {len(edit.new):,} bytes, and the store takes objects of "
                f"{DOCUMENT_LIMIT:,} at most: make several of it"
            )


def _refuse_taken(connection: Connection, changes: Sequence[Edit]) -> None:
    """An address has one owner; those that change in this same request have given theirs up."""
    owners: dict[str, tuple[str, str]] = {}
    for edit in changes:
        me = (edit.kind.name, edit.name)
        for address in addresses_of(edit.thing) if edit.thing is not None else ():
            if owners.setdefault(address, me) != me:
                raise _taken(address, me, owners[address])
    moving = {(edit.kind.name, edit.name) for edit in changes}
    for some in portions(sorted(owners)):
        for row in connection.execute(select(ADDRESSES).where(ADDRESSES.c.address.in_(some))):
            if (row.kind, row.name) not in moving:
                raise _taken(row.address, owners[row.address], (row.kind, row.name))


def _taken(address: str, by: tuple[str, str], owner: tuple[str, str]) -> EditRefused:
    return EditRefused(
        f"{' '.join(by)} cannot have {address}: it is the address of {' '.join(owner)}; give it another, or delete that"
    )


def _refuse_left_behind(connection: Connection, changes: Sequence[Edit]) -> None:
    """A host or a network does not go before its endpoints, nor a host before those that are on their way to it: they
    would be nobody's."""
    for kind, column in ((HOST, OBJECTS.c.host), (NETWORK, OBJECTS.c.network)):
        for some in portions([edit.name for edit in changes if edit.kind is kind and edit.did is ChangeKind.DELETED]):
            left = sorted(_beside(connection, changes, column.in_(some)), key=lambda row: row.kind != ENDPOINT.name)
            if left:
                raise _left_behind(kind, left)


def _left_behind(kind: Kind[Any, Any], left: Sequence[Row[Any]]) -> EditRefused:
    first, count = left[0], sum(row.kind == left[0].kind for row in left)
    more = f" and {count - 1:,} more" if count > 1 else ""
    where = first.host if kind is HOST else first.network
    if first.kind == ENDPOINT.name:
        return EditRefused(f"{kind.name} {where} has endpoints ({first.name}{more}): move or delete them first")
    return EditRefused(
        f"{kind.name} {where} is where migrations go ({first.name}{more}): delete them first, or send them elsewhere"
    )


def _refuse_nowhere(connection: Connection, changes: Sequence[Edit]) -> None:
    """The host that a migration goes to is there, or nobody would ever see it arrive."""
    goals = {edit.name: host_of(edit.thing) for edit in changes if isinstance(edit.thing, Migration)}
    hosts = {row.name for row in called(connection, HOST, sorted(set(goals.values())))} if goals else set()
    hosts |= {edit.name for edit in changes if edit.kind is HOST and edit.thing is not None}
    hosts -= {edit.name for edit in changes if edit.kind is HOST and edit.thing is None}
    for name, host in goals.items():
        if host not in hosts:
            raise EditRefused(
                f"migration {name} goes to host {host}, which is not in the inventory: apply that host as well"
            )


def _refuse_off_network(connection: Connection, changes: Sequence[Edit]) -> None:
    """An endpoint's network is there, and its addresses lie within it."""
    edits = [edit for edit in changes if network_named(edit.thing)]
    if not edits:
        return
    networks = _networks(connection, changes, sorted({network_named(edit.thing) for edit in edits}))
    for edit in edits:
        name = network_named(edit.thing)
        if name not in networks:
            raise EditRefused(
                f"endpoint {edit.name} is on network {name}, which is not in the inventory: apply that network as well"
            )
        _refuse_outside(edit.name, edit.thing, name, networks[name])


def _refuse_narrowed(connection: Connection, changes: Sequence[Edit]) -> None:
    """A network that changes still has all of its endpoints within it."""
    changed = {edit.name: edit.thing for edit in changes if edit.kind is NETWORK and edit.did is ChangeKind.CHANGED}
    for some in portions(sorted(changed)):
        for row in _beside(connection, changes, OBJECTS.c.network.in_(some)):
            endpoint, network = ENDPOINT.decode(row.key, row.doc), changed[row.network]
            if not isinstance(endpoint, Bad) and isinstance(network, Network):
                _refuse_outside(row.name, endpoint, row.network, network)


def _refuse_outside(name: str, endpoint: Any, of: str, network: Network) -> None:
    for address in endpoint.spec.ip_networks:
        if not network.has(address):
            raise EditRefused(
                f"endpoint {name} has {address}, which is not within network {of} ({' '.join(network.prefixes)}): "
                "give it an address that is, or widen the network"
            )


def _refuse_contradiction(connection: Connection, changes: Sequence[Edit]) -> None:
    """Frontends, backends and health checks make sense together, or none of the request is taken."""
    if not any(edit.kind in SERVING for edit in changes):
        return
    for edit in changes:
        if edit.kind in SERVING and edit.thing is not None:
            try:
                serving.section(edit.kind, edit.thing)
            except ValueError as wrong:
                raise EditRefused(f"{edit.kind.name} {edit.name}: {wrong}") from wrong
    wrong_together = serving.contradiction(_served(connection, changes))
    if wrong_together is not None:
        raise EditRefused(f"nothing was changed: {wrong_together}")


def _served(connection: Connection, changes: Sequence[Edit]) -> Iterator[tuple[Kind[Any, Any], str, Any]]:
    """All that is served once these changes are made."""
    for edit in changes:
        if edit.kind in SERVING and edit.thing is not None:
            yield edit.kind, edit.name, edit.thing
    kinds: Mapping[str, Kind[Any, Any]] = {kind.name: kind for kind in SERVING}
    for row in _beside(connection, changes, OBJECTS.c.kind.in_(list(kinds))):
        thing = kinds[row.kind].decode(row.key, row.doc)
        if not isinstance(thing, Bad):
            yield kinds[row.kind], row.name, thing


def _networks(connection: Connection, changes: Sequence[Edit], names: Sequence[str]) -> Mapping[str, Network]:
    """The networks of these names as they will be."""
    found: dict[str, Network] = {}
    for row in called(connection, NETWORK, names):
        network = NETWORK.decode(row.key, row.doc)
        if not isinstance(network, Bad):
            found[row.name] = network
    for edit in changes:
        if edit.kind is NETWORK:
            found.pop(edit.name, None)
            if isinstance(edit.thing, Network):
                found[edit.name] = edit.thing
    return found


def _beside(connection: Connection, changes: Sequence[Edit], condition: Any) -> Sequence[Row[Any]]:
    """The objects of which that is true and which these changes do not touch, in key order."""
    touched = {edit.old_key for edit in changes}
    question = select(OBJECTS).where(condition).order_by(OBJECTS.c.key)
    return [row for row in connection.execute(question) if row.key not in touched]
