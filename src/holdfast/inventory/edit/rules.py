"""Rules of the inventory: refuse addresses that are taken or would cut hosts off, deletes of objects that others depend
on, objects of another region, and objects that the store would not accept.

Each rule compares the edits of one batch with the other stored objects, inside the transaction that applies them.
Batches are serialized (`editor`), so that two cannot be valid one by one and contradict each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, select

from holdfast.config.loading.section import unfit
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import Frontend
from holdfast.config.sections.stored import StoredSection
from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject
from holdfast.inventory.kinds import SERVING, addresses_of, belongs, host_of, network_named
from holdfast.inventory.sql.objects import batches, rows_named
from holdfast.inventory.sql.schema import ADDRESSES, OBJECTS
from holdfast.model.balancing import SETTINGS_FIELDS
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.host import HOST, Host
from holdfast.model.calico.migration import Migration
from holdfast.model.fleet.network import NETWORK, Network
from holdfast.model.fleet.prefix_policy import Prefix, PrefixPolicy, PrefixRefusal, forbidden, parsed

DOCUMENT_LIMIT = 1 << 20
"""Bytes. etcd refuses requests above 1.5 MiB, and a request holds more than the document."""
KEY_LIMIT = 1_000
"""Bytes. PostgreSQL cannot index much longer ones."""
_SHOWN = 20
"""Sentences of one refusal."""


def refuse_repetition(requests: Sequence[WantedObject]) -> None:
    """Refuse two requests for one object: they contradict each other, or one is redundant."""
    seen: set[tuple[str, str]] = set()
    for request in requests:
        if (request.kind.name, request.name) in seen:
            raise EditRefused(f"{request.kind.name} {request.name} is named twice in one request: name it once")
        seen.add((request.kind.name, request.name))


def refuse_foreign(
    requests: Sequence[WantedObject], stored: Mapping[tuple[str, str], Row[Any]], region: Region
) -> None:
    """Refuse edits of another region's objects: neither region's syncer would know both keys."""
    for request in requests:
        sides: list[tuple[bytes, Any]] = [] if request.thing is None else [(request.key, request.thing)]
        row = stored.get((request.kind.name, request.name))
        if row is not None:
            sides.append((row.key, request.kind.decode(row.key, row.doc) if request.kind is HOST else None))
        if not all(belongs(request.kind, key, thing, region) for key, thing in sides):
            here = f"region {region.name}" if region.name else "no region"
            raise EditRefused(
                f"{request.kind.name} {request.name} belongs to another region, and this configuration is for {here}: "
                "edit it with that region's store.region; each region has its own database"
            )


@dataclass(frozen=True, slots=True)
class PrefixRules:
    """Addresses and devices that no endpoint may have: those at which the store is reached, but for prefixes that an
    operator allows all the same, and devices of hosts."""

    stores: frozenset[str] = frozenset()
    allowed: frozenset[Prefix] = frozenset()
    devices: frozenset[str] = frozenset({"lo"})
    """Devices that every host has for itself: none of them leads to a workload."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Rules for endpoints that an operator puts on a host. An import of what exists is bound by neither."""

    drained: Mapping[str, str] = field(default_factory=dict)
    """Drained hosts, each with who drained it and why."""
    on_known_hosts: bool = False


def refuse(connection: Connection, changes: Sequence[Edit], prefixes: PrefixRules, placement: Placement) -> None:
    """Raise `EditRefused` with everything that these edits break, one sentence per line."""
    found = dict.fromkeys(_broken(connection, changes, prefixes, placement))
    if found:
        shown = [*itertools.islice(found, _SHOWN)]
        raise EditRefused("\n".join([*shown, *([f"and {len(found) - _SHOWN:,} more"] if len(found) > _SHOWN else [])]))


def _broken(
    connection: Connection, changes: Sequence[Edit], prefixes: PrefixRules, placement: Placement
) -> Iterator[str]:
    yield from _misplaced(connection, changes, placement)
    yield from _oversized(changes)
    yield from harmful_prefixes(connection, changes, prefixes)
    yield from _reserved_devices(changes, prefixes.devices)
    yield from _taken(connection, changes)
    yield from _orphans(connection, changes)
    yield from _unknown_targets(connection, changes)
    yield from _off_network(connection, changes)
    yield from _narrowed(connection, changes)
    yield from _contradiction(connection, changes)


def _misplaced(connection: Connection, changes: Sequence[Edit], placement: Placement) -> Iterator[str]:
    """An endpoint is not put on a drained or unknown host, nor migrated to a drained one. One that is there may
    change."""
    put = [edit for edit in changes if edit.thing is not None and edit.did in (ChangeKind.CREATED, ChangeKind.MOVED)]
    for edit in put:
        host = "" if edit.thing is None else host_of(edit.thing)
        if host in placement.drained:
            yield (
                f"{edit.kind.name} {edit.name} cannot go to host {host}, which is drained by "
                f"{placement.drained[host]}: choose another host, or end the drain with holdfast undrain host {host}"
            )
    if placement.on_known_hosts:
        endpoints = [edit for edit in put if isinstance(edit.thing, Endpoint)]
        yield from _unknown_hosts(connection, changes, endpoints, "is on")


def _oversized(changes: Sequence[Edit]) -> Iterator[str]:
    """Objects that the store or the database could never accept."""
    for edit in changes:
        if len(edit.key) > KEY_LIMIT:
            yield (
                f"{edit.kind.name} {edit.name[:60]}… has a key of {len(edit.key):,} bytes, and {KEY_LIMIT:,} is the "
                "limit: shorten its name"
            )
        if edit.new is not None and len(edit.new) > DOCUMENT_LIMIT:
            yield (
                f"{edit.kind.name} {edit.name} has {len(edit.new):,} bytes, and the store accepts "
                f"{DOCUMENT_LIMIT:,} at most: split it into several objects"
            )


def _taken(connection: Connection, changes: Sequence[Edit]) -> Iterator[str]:
    """An address has one owner. Objects that this batch changes have released theirs."""
    owners: dict[str, tuple[str, str]] = {}
    for edit in changes:
        owner = (edit.kind.name, edit.name)
        for address in addresses_of(edit.thing) if edit.thing is not None else ():
            if owners.setdefault(address, owner) != owner:
                yield _is_taken(address, owner, owners[address])
    changed = {(edit.kind.name, edit.name) for edit in changes}
    for batch in batches(sorted(owners)):
        for row in connection.execute(select(ADDRESSES).where(ADDRESSES.c.address.in_(batch))):
            if (row.kind, row.name) not in changed:
                yield _is_taken(row.address, owners[row.address], (row.kind, row.name))


def harmful_prefixes(connection: Connection, changes: Sequence[Edit], rules: PrefixRules) -> Iterator[str]:
    """Prefixes that would cut hosts off: default, loopback, link-local and multicast ones, and those that cover
    an address of the store or of a host."""
    # protection: N21
    for edit in changes:
        for prefix in edit.thing.prefixes if isinstance(edit.thing, Network) else ():
            yield from _refused_prefix(edit, prefix, forbidden(parsed(prefix)))
    edits = [edit for edit in changes if isinstance(edit.thing, Endpoint)]
    policy = PrefixPolicy(dict.fromkeys(rules.stores, "an address of the store"), allowed=rules.allowed)
    for edit, prefix in _prefixes(edits):
        yield from _refused_prefix(edit, prefix, policy.refusal(parsed(prefix)))
    yield from _covered_hosts(connection, changes, edits, rules)


def _covered_hosts(
    connection: Connection, changes: Sequence[Edit], edits: Sequence[Edit], rules: PrefixRules
) -> Iterator[str]:
    """The same for addresses of hosts and prefixes of several addresses; a single address has one owner anyway."""
    hosts = [edit for edit in changes if isinstance(edit.thing, Host)]
    wide = [(edit, prefix) for edit, prefix in _prefixes(edits) if _is_wide(prefix)]
    if wide:
        names = {edit.name for edit in changes if edit.kind is HOST}
        query = select(ADDRESSES).where(ADDRESSES.c.kind == HOST.name)
        found = {row.address: row.name for row in connection.execute(query) if row.name not in names}
        policy = _no_host_covered(found | _own_addresses(hosts), rules)
        for edit, prefix in wide:
            yield from _refused_prefix(edit, prefix, policy.refusal(parsed(prefix)))
    if hosts:
        policy, names = _no_host_covered(_own_addresses(hosts), rules), {edit.name for edit in edits}
        query = select(ADDRESSES).where(ADDRESSES.c.kind == ENDPOINT.name, ADDRESSES.c.address.contains("/"))
        for row in connection.execute(query):
            refusal = policy.refusal(parsed(row.address)) if row.name not in names else None
            if refusal is not None:
                yield f"endpoint {row.name} has {row.address}, and {refusal.why}: change either of them"


def _no_host_covered(addresses: Mapping[str, str], rules: PrefixRules) -> PrefixPolicy:
    return PrefixPolicy(
        {address: f"an address of host {host}" for address, host in addresses.items()}, allowed=rules.allowed
    )


def _own_addresses(hosts: Sequence[Edit]) -> dict[str, str]:
    return {address: edit.name for edit in hosts if edit.thing is not None for address in addresses_of(edit.thing)}


def _reserved_devices(changes: Sequence[Edit], devices: frozenset[str]) -> Iterator[str]:
    for edit in changes:
        name = edit.thing.spec.interface_name if isinstance(edit.thing, Endpoint) else ""
        if name in devices:
            yield (
                f"endpoint {edit.name} cannot have the interface {name}, which every host has for itself: "
                "write the workload's in spec.interfaceName"
            )


def _prefixes(edits: Sequence[Edit]) -> Iterator[tuple[Edit, str]]:
    for edit in edits:
        if isinstance(edit.thing, Endpoint):
            for prefix in edit.thing.spec.ip_networks:
                yield edit, prefix


def _is_wide(prefix: str) -> bool:
    return not prefix.endswith("/128" if ":" in prefix else "/32")


def _refused_prefix(edit: Edit, prefix: str, refusal: PrefixRefusal | None) -> Iterator[str]:
    if refusal is not None:
        yield f"{edit.kind.name} {edit.name} cannot have {prefix}: {refusal.why}; {refusal.way_out}"


def _is_taken(address: str, by: tuple[str, str], owner: tuple[str, str]) -> str:
    return (
        f"{' '.join(by)} cannot have {address}: it is the address of {' '.join(owner)}; use another, or delete that one"
    )


def _orphans(connection: Connection, changes: Sequence[Edit]) -> Iterator[str]:
    """A host or network that has endpoints is not deleted, nor a host that is the target of a migration."""
    for kind, column in ((HOST, OBJECTS.c.host), (NETWORK, OBJECTS.c.network)):
        for batch in batches([edit.name for edit in changes if edit.kind is kind and edit.did is ChangeKind.DELETED]):
            left = sorted(_untouched(connection, changes, column.in_(batch)), key=lambda row: row.kind != ENDPOINT.name)
            owners: dict[str, list[Row[Any]]] = {}
            for row in left:
                owners.setdefault(row.host if kind is HOST else row.network, []).append(row)
            yield from (_has_dependents(kind, name, rows) for name, rows in owners.items())


def _has_dependents(kind: Kind[Any, Any], name: str, left: Sequence[Row[Any]]) -> str:
    first, count = left[0], sum(row.kind == left[0].kind for row in left)
    more = f" and {count - 1:,} more" if count > 1 else ""
    if first.kind == ENDPOINT.name:
        return f"{kind.name} {name} has endpoints ({first.name}{more}): move or delete them first"
    return f"{kind.name} {name} is the target of migrations ({first.name}{more}): delete or redirect them first"


def _unknown_targets(connection: Connection, changes: Sequence[Edit]) -> Iterator[str]:
    """The target host of a migration must exist: no agent could report the arrival otherwise."""
    migrations = [edit for edit in changes if isinstance(edit.thing, Migration)]
    yield from _unknown_hosts(connection, changes, migrations, "goes to")


def _unknown_hosts(
    connection: Connection, changes: Sequence[Edit], placed: Sequence[Edit], relation: str
) -> Iterator[str]:
    """Edits whose host is neither stored nor part of these changes."""
    wanted_hosts = sorted({host_of(edit.thing) for edit in placed if edit.thing is not None})
    hosts = {row.name for row in rows_named(connection, HOST, wanted_hosts)} if wanted_hosts else set()
    hosts |= {edit.name for edit in changes if edit.kind is HOST and edit.thing is not None}
    hosts -= {edit.name for edit in changes if edit.kind is HOST and edit.thing is None}
    for edit in placed:
        host = host_of(edit.thing) if edit.thing is not None else ""
        if host not in hosts:
            yield (
                f"{edit.kind.name} {edit.name} {relation} host {host}, which is not in the inventory: "
                "apply that host as well"
            )


def _off_network(connection: Connection, changes: Sequence[Edit]) -> Iterator[str]:
    """The network of an endpoint must exist and contain its addresses."""
    edits = [edit for edit in changes if network_named(edit.thing)]
    if not edits:
        return
    networks = _networks(connection, changes, sorted({network_named(edit.thing) for edit in edits}))
    for edit in edits:
        name = network_named(edit.thing)
        if name not in networks:
            yield (
                f"endpoint {edit.name} is on network {name}, which is not in the inventory: apply that network as well"
            )
        else:
            yield from _outside(edit.name, edit.thing, name, networks[name])


def _narrowed(connection: Connection, changes: Sequence[Edit]) -> Iterator[str]:
    """A changed network must still contain the addresses of all its endpoints."""
    changed = {edit.name: edit.thing for edit in changes if edit.kind is NETWORK and edit.did is ChangeKind.CHANGED}
    for batch in batches(sorted(changed)):
        for row in _untouched(connection, changes, OBJECTS.c.network.in_(batch)):
            endpoint, network = ENDPOINT.decode(row.key, row.doc), changed[row.network]
            if not isinstance(endpoint, Bad) and isinstance(network, Network):
                yield from _outside(row.name, endpoint, row.network, network)


def _outside(name: str, endpoint: Any, of: str, network: Network) -> Iterator[str]:
    for address in endpoint.spec.ip_networks:
        if not network.has(address):
            yield (
                f"endpoint {name} has {address}, which is not within network {of} ({' '.join(network.prefixes)}): "
                "choose another address, or add a prefix to the network"
            )


def _contradiction(connection: Connection, changes: Sequence[Edit]) -> Iterator[str]:
    """Frontends, backends and health checks must be valid together."""
    if not any(edit.kind in SERVING for edit in changes):
        return
    sections = [(edit, unfit(edit.thing)) for edit in changes if isinstance(edit.thing, StoredSection)]
    wrong = [f"{edit.kind.name} {edit.name}: {sentence}" for edit, sentence in sections if sentence is not None]
    yield from wrong
    conflict = None if wrong else _conflict(_served(connection, changes))
    if conflict is not None:
        yield f"nothing was changed: {conflict}"


def _conflict(served: Iterator[tuple[Kind[Any, Any], str, Any]]) -> str | None:
    """Check these objects together, by the rules of a balancer's file. Returns the first conflict, in one sentence."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in SETTINGS_FIELDS.values()}
    for kind, name, one in served:
        # Only the machine that announces the address can say whether that is possible.
        found = msgspec.structs.replace(one, announce=None) if isinstance(one, Frontend) else one
        groups[SETTINGS_FIELDS[kind.name]][name] = found
    whole = msgspec.structs.replace(BalancerSettings(source="etcd"), **groups)
    conflict = next(whole.conflicts(), None)
    return None if conflict is None else f"{conflict.fields[0]} {conflict.sentence}"


def _served(connection: Connection, changes: Sequence[Edit]) -> Iterator[tuple[Kind[Any, Any], str, Any]]:
    """Everything that balancers will serve once these edits are applied."""
    for edit in changes:
        if edit.kind in SERVING and edit.thing is not None:
            yield edit.kind, edit.name, edit.thing
    kinds: Mapping[str, Kind[Any, Any]] = {kind.name: kind for kind in SERVING}
    for row in _untouched(connection, changes, OBJECTS.c.kind.in_(list(kinds))):
        thing = kinds[row.kind].decode(row.key, row.doc)
        if not isinstance(thing, Bad):
            yield kinds[row.kind], row.name, thing


def _networks(connection: Connection, changes: Sequence[Edit], names: Sequence[str]) -> Mapping[str, Network]:
    """The networks of these names once the edits are applied."""
    found: dict[str, Network] = {}
    for row in rows_named(connection, NETWORK, names):
        network = NETWORK.decode(row.key, row.doc)
        if not isinstance(network, Bad):
            found[row.name] = network
    for edit in changes:
        if edit.kind is NETWORK:
            found.pop(edit.name, None)
            if isinstance(edit.thing, Network):
                found[edit.name] = edit.thing
    return found


def _untouched(connection: Connection, changes: Sequence[Edit], condition: Any) -> Sequence[Row[Any]]:
    """Objects that meet the condition and that these edits do not touch, in key order."""
    touched = {edit.old_key for edit in changes}
    query = select(OBJECTS).where(condition).order_by(OBJECTS.c.key)
    return [row for row in connection.execute(query) if row.key not in touched]
