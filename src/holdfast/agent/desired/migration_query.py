"""Questions to the store about who is on his way and who has arrived, and what answers them. Pure.

An endpoint that would take an address from an older one of the same workload: does it only wait there for a migration
of which the word is late? A migration that is gone: has its workload arrived, or turned back? Both have the same
answer: no migration goes there any more, and the ends of it stand in the store exactly as they are known here. While
both ends stand it is not over, because a driver may take the migration away first and then the endpoint that is not
needed any more; but that takes it no longer than `PATIENCE`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.agent.desired.migrations import Move
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.migration import MIGRATION

PATIENCE = Duration(seconds=30)


class MigrationQuery(msgspec.Struct, frozen=True, eq=False):
    """About one object in the store, as it is known here."""

    by: bytes
    subject: Endpoint | Move
    """The doubted endpoint, or the migration that is gone."""
    ends: tuple[EndpointName, ...]
    """Where to, and from where if that is known."""
    stand: tuple[bool, ...]
    """Which of them are known here."""

    def is_still(self, other: MigrationQuery | None) -> bool:
        """Whether that is the same question: an answer to an earlier one answers nothing, however alike they are."""
        return other is not None and self.subject is other.subject and self.stand == other.stand

    def keys(self, region: Region) -> list[bytes]:
        """What it has to be read of, at one moment."""
        return [MIGRATION.key(region, self.ends[0]), *(ENDPOINT.key(region, end) for end in self.ends)]

    def is_answered(self, found: Sequence[bool], waited: Duration) -> bool:
        """`found` says which of the keys are there."""
        migrates, *stand = found
        if migrates or tuple(stand) != self.stand:
            return False
        return stand != [True, True] or waited >= PATIENCE
