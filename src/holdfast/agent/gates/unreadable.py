"""Unreadable values of a source: which objects on this host could be the state of one. Pure.

A value that was never readable is present, not absent (C39): its state stays. That is what its key names: everything of
an unreadable host and of the endpoints on it, and the routes of a workload whose endpoint or migration is unreadable.
Whatever belongs to other objects is pruned all the same (N27): one bad value must not stop all prunes of a fleet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.desired.slim_endpoint import without_host
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.reconcile import Change


@dataclass(slots=True)
class UnreadableValues:
    """Finds the unreadable values whose state a change could delete."""

    regions: Mapping[str, Region]
    """Region of each source."""
    _named: dict[str, tuple[Sequence[str], Mapping[str, str]]] = field(default_factory=dict)
    """Unreadable keys of a source, as of the last question, and what each names."""

    def blamed(self, change: Change[ClaimKey, Claim], source: str, unreadable: Sequence[str]) -> Sequence[str]:
        """Return those of the unreadable keys of a source that may describe the object of this delete."""
        old = change.old
        if old is None or not old.source or source not in self.regions:
            return unreadable  # known only by its tag: it could be anyone's
        owner, named = old.value.owner, self._names(source, unreadable)
        found = [named.get(_host(owner.host))]
        if owner.endpoint:
            found.append(named.get(_workload(without_host(owner.endpoint, owner.host))))
        return [key for key in found if key is not None]

    def _names(self, source: str, unreadable: Sequence[str]) -> Mapping[str, str]:
        known = self._named.get(source)
        if known is None or known[0] != unreadable:
            region = self.regions[source]
            names = {name: key for key in unreadable for name in _names_in(key, region)}
            known = self._named[source] = unreadable, names
        return known[1]


def _names_in(key: str, region: Region) -> Iterator[str]:
    host = HOST.parse(key.encode(), region)
    if not isinstance(host, Bad):
        yield _host(host)
    for kind in ENDPOINT, MIGRATION:
        name = kind.parse(key.encode(), region)
        if not isinstance(name, Bad):
            yield _workload(name.individual)


def _host(name: str) -> str:
    return f"host {name}"


def _workload(individual: str) -> str:
    return f"workload {individual}"
