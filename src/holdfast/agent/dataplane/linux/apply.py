"""Orders: changes as packed requests, run by run in the order given, with one answer each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Protocol

from holdfast.agent.claims import ClaimKey, ClaimKind, Shape
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused
from holdfast.agent.dataplane.linux.routes import NexthopWriter, RouteWriter, RuleWriter
from holdfast.agent.dataplane.linux.vxlan import FdbWriter, NeighbourWriter


class ObjectWriter(Protocol):
    """Makes and removes the objects of one sort, of one family at a time."""

    def make(self, ground: LinuxContext, family: int, wanted: Sequence[tuple[ClaimKey, Shape]]) -> Refused: ...

    def remove(self, ground: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused: ...


MAKERS: Mapping[ClaimKind, ObjectWriter] = {
    ClaimKind.RULE: RuleWriter(),
    ClaimKind.FORWARDING: FdbWriter(),
    ClaimKind.NEIGHBOUR: NeighbourWriter(),
    ClaimKind.NEXTHOP: NexthopWriter(),
    ClaimKind.ROUTE: RouteWriter(),
}


def carry_out(ground: LinuxContext, changes: Sequence[ClaimChange]) -> list[str | None]:
    """Makes these changes; per change None, or one sentence why not. The picture tells what is there afterwards."""
    answers: list[str | None] = []
    for (sort, family, is_gone), alike in groupby(changes, _run):
        run = list(alike)
        maker = MAKERS[sort]
        if is_gone:
            refused = maker.remove(ground, family, [change.key for change in run])
        else:
            refused = maker.make(ground, family, [(c.key, c.new.value.shape) for c in run if c.new is not None])
        _note(ground, run, refused)
        answers += [refused.get(change.key) for change in run]
    return answers


def _run(change: ClaimChange) -> tuple[ClaimKind, int, bool]:
    return change.key.sort, change.key.family, change.new is None


def _note(ground: LinuxContext, run: Sequence[ClaimChange], refused: Refused) -> None:
    for change in run:
        if change.key in refused:
            continue
        if change.new is None:
            ground.picture.shapes.pop(change.key, None)
        else:
            ground.picture.shapes[change.key] = change.new.value.shape
