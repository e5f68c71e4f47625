"""Keys of one region: the part of the store that the inventory decides about, and which object has which key. Pure.

Keys under our prefixes that are not ours are never touched (rule 6): keys of another form, hosts of another region,
which share our prefix, and keys that an operator ignores.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import Any

from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.cluster import CLUSTER, DEFAULT, FELIX_CONFIGURATION
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST, REGION_LABEL, region_of
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.calico.policy import POLICY
from holdfast.reconcile import Kinds
from holdfast.store.api import Entry

_PART = rb"[0-9A-Za-z._]+(?:--[0-9A-Za-z._]+)*"
_plain_endpoint = re.compile(rb"%b-(?:openstack|holdfast)-%b-%b" % (_PART, _PART, _PART)).fullmatch
"""Matches nearly every endpoint's name; the model accepts whatever this accepts, at ten times the cost."""
GROUP_POLICY = "ossg.default."
"""Beginning of the names of policies that security groups of OpenStack have."""
_node = re.compile(rb"(?:[^-]|--)*-").match
"""Matches the host in the name of an endpoint or a migration, up to the first hyphen that is not doubled."""


def name_is_ours(kind: Kind[Any, Any], name: Any) -> bool:
    """True unless the name shows that an operator or another program made the object: Felix settings of one host, and
    policies that no security group made."""
    if kind is POLICY:
        return bool(name.startswith(GROUP_POLICY))
    return (kind is not CLUSTER and kind is not FELIX_CONFIGURATION) or name == DEFAULT


class RegionKeys:
    """Keys of one region and of these kinds, endpoints among them; a kind comes after the kinds that it depends on."""

    def __init__(self, region: Region, kinds: Sequence[Kind[Any, Any]]) -> None:
        self.region = region
        self._kinds = sorted(((kind.prefix(region), kind) for kind in kinds), key=lambda pair: pair[0])
        self.prefixes = [prefix for prefix, _ in self._kinds]
        self._plurals = [kind.plural for _, kind in self._kinds]
        self._endpoint, self._migration = ENDPOINT.prefix(region), MIGRATION.prefix(region)
        self.ignored: frozenset[bytes] = frozenset()
        self.kinds: Kinds[bytes] = Kinds(of=self.plural, order=[kind.plural for kind in kinds])

    def has(self, key: bytes) -> bool:
        """True if a key is under our prefixes. A database can hold objects of another region, whose keys are not."""
        place = bisect_right(self.prefixes, key) - 1
        return place >= 0 and key.startswith(self.prefixes[place])

    def wants(self, key: bytes, doc: bytes) -> bool:
        """True if an object of the inventory belongs to this region. Hosts of all regions share one prefix."""
        if key.startswith(self._endpoint):
            return True  # nearly always, and without a search
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
        if entry.key in self.ignored:
            return False
        if entry.key.startswith(self._endpoint) and _plain_endpoint(entry.key, len(self._endpoint)):
            return True
        kind = self.kind(entry.key)
        name = kind.parse(entry.key, self.region)
        if isinstance(name, Bad) or not name_is_ours(kind, name):
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
        """True if the stored value means the same, however it is spelled."""
        if new.value == old.value:
            return True
        kind = self.kind(new.key)
        wanted = kind.decode(new.key, new.value)
        return not isinstance(wanted, Bad) and kind.equals(old.key, old.value, wanted)

    def show(self, key: bytes) -> str:
        """A key as operators write it: `endpoint r1-holdfast-w1-eth0`."""
        kind = self.kind(key)
        name = kind.parse(key, self.region)
        return key.decode(errors="backslashreplace") if isinstance(name, Bad) else f"{kind.name} {name}"

    def individual(self, key: bytes) -> Hashable:
        """Identity of an object that stays the same when it moves to another key; None for objects that cannot move."""
        workload = self.workload(key)
        return workload if workload is None or key.startswith(self._endpoint) else (MIGRATION.name, workload)

    def workload(self, key: bytes) -> bytes | None:  # protection: C35
        """Workload of an endpoint or a migration, on whichever host; None for other objects."""
        for prefix in (self._endpoint, self._migration):
            if key.startswith(prefix):
                node = _node(key, len(prefix))
                return None if node is None else key[node.end() :]
        return None
