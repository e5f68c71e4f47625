"""Which part of the store the inventory decides about: prefixes in key order, and whose key is whose. Pure.

What stands under our prefixes and is not ours is never touched (rule 6): keys of another form, and hosts of another
region, which stand beside ours.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import Any

from holdfast.inventory.kinds import REGION_LABEL, region_of
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.reconcile import Kinds
from holdfast.store.api import Entry

_PART = rb"[0-9A-Za-z._]+(?:--[0-9A-Za-z._]+)*"
_plain_endpoint = re.compile(rb"%b-(?:openstack|holdfast)-%b-%b" % (_PART, _PART, _PART)).fullmatch
"""Nearly every endpoint's name; whatever this accepts the model accepts, at a tenth of the price."""
_node = re.compile(rb"(?:[^-]|--)*-").match
"""The host in the name of an endpoint or a migration, up to the first hyphen that is not a doubled one."""


class RegionKeys:
    """The keys of one region and of these kinds; `kinds` has the ones leaned upon first."""

    def __init__(self, region: Region, kinds: Sequence[Kind[Any, Any]]) -> None:
        self.region = region
        self._kinds = sorted(((kind.prefix(region), kind) for kind in kinds), key=lambda pair: pair[0])
        self.prefixes = [prefix for prefix, _ in self._kinds]
        self._plurals = [kind.plural for _, kind in self._kinds]
        self._endpoint, self._migration = ENDPOINT.prefix(region), MIGRATION.prefix(region)
        self.kinds: Kinds[bytes] = Kinds(of=self.plural, order=[kind.plural for kind in kinds])

    def has(self, key: bytes) -> bool:
        """Whether a key stands under our prefixes. One of another region does not, and a database can hold such."""
        place = bisect_right(self.prefixes, key) - 1
        return place >= 0 and key.startswith(self.prefixes[place])

    def wants(self, key: bytes, doc: bytes) -> bool:
        """Whether an object of the inventory is one of this region's. Hosts of all regions have the same prefix."""
        return self.has(key) and (self.kind(key) is not HOST or self._is_our_host(Entry(key, doc)))

    def kind(self, key: bytes) -> Kind[Any, Any]:
        """The kind of one of our keys."""
        return self._kinds[self._place(key)][1]

    def plural(self, key: bytes) -> str:
        return self._plurals[self._place(key)]

    def _place(self, key: bytes) -> int:
        place = bisect_right(self.prefixes, key) - 1
        if place < 0 or not key.startswith(self.prefixes[place]):
            raise ValueError(f"{key!r} is under none of our prefixes")
        return place

    def is_ours(self, entry: Entry) -> bool:
        kind = self.kind(entry.key)
        if kind is ENDPOINT and _plain_endpoint(entry.key, len(self._endpoint)):
            return True
        if isinstance(kind.parse(entry.key, self.region), Bad):
            return False
        return kind is not HOST or self._is_our_host(entry)

    def _is_our_host(self, entry: Entry) -> bool:
        if not self.region.name and REGION_LABEL.encode() not in entry.value:
            return True  # nearly always, and without decoding
        host = HOST.decode(entry.key, entry.value)
        if isinstance(host, Bad):
            return not self.region.name
        return region_of(host.metadata.labels, self.region)

    def same(self, new: Entry, old: Entry) -> bool:
        """Whether the store says this already, however it spells it."""
        if new.value == old.value:
            return True
        kind = self.kind(new.key)
        wanted = kind.decode(new.key, new.value)
        return not isinstance(wanted, Bad) and kind.equals(old.key, old.value, wanted)

    def show(self, key: bytes) -> str:
        """A key as people write it: `endpoint r1-holdfast-w1-eth0`."""
        kind = self.kind(key)
        name = kind.parse(key, self.region)
        return key.decode(errors="backslashreplace") if isinstance(name, Bad) else f"{kind.name} {name}"

    def individual(self, key: bytes) -> Hashable:
        """What stays the same when an object moves to another key; None for objects that cannot."""
        workload = self.workload(key)
        return workload if workload is None or key.startswith(self._endpoint) else (MIGRATION.name, workload)

    def workload(self, key: bytes) -> bytes | None:
        """Whom an endpoint or a migration is about, wherever it is and goes; None for other objects."""
        for prefix in (self._endpoint, self._migration):
            if key.startswith(prefix):
                node = _node(key, len(prefix))
                return None if node is None else key[node.end() :]
        return None
