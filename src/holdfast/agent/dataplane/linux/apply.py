"""Applies changes as packed requests, run by run in the order given, with one answer each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Protocol

from holdfast.agent.claims import ClaimKey, ClaimKind, Shape
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused
from holdfast.agent.dataplane.linux.guard.writer import GuardElementWriter, GuardTableWriter
from holdfast.agent.dataplane.linux.interface_writer import InterfaceWriter
from holdfast.agent.dataplane.linux.own_tunnels import AddressWriter, DeviceWriter
from holdfast.agent.dataplane.linux.routes import NexthopWriter, RouteWriter, RuleWriter
from holdfast.agent.dataplane.linux.vxlan import FdbWriter, NeighbourWriter


class ObjectWriter(Protocol):
    """Creates and deletes the objects of one kind, one family at a time."""

    def make(self, context: LinuxContext, family: int, wanted: Sequence[tuple[ClaimKey, Shape]]) -> Refused: ...

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused: ...


WRITERS: Mapping[ClaimKind, ObjectWriter] = {
    ClaimKind.RULE: RuleWriter(),
    ClaimKind.DEVICE: DeviceWriter(),
    ClaimKind.ADDRESS: AddressWriter(),
    ClaimKind.FORWARDING: FdbWriter(),
    ClaimKind.NEIGHBOUR: NeighbourWriter(),
    ClaimKind.NEXTHOP: NexthopWriter(),
    ClaimKind.ROUTE: RouteWriter(),
    ClaimKind.INTERFACE: InterfaceWriter(),
    ClaimKind.GUARD: GuardTableWriter(),
    ClaimKind.SENDER: GuardElementWriter(),
    ClaimKind.SOURCE: GuardElementWriter(),
    ClaimKind.GUARDED: GuardElementWriter(),
}


def apply(context: LinuxContext, changes: Sequence[ClaimChange]) -> list[str | None]:
    """Apply these changes; per change None, or one sentence why not. The snapshot is up to date afterwards."""
    answers: list[str | None] = []
    for (kind, family, is_delete), group in groupby(changes, _run):
        run = list(group)
        writer = WRITERS[kind]
        if is_delete:
            refused = writer.remove(context, family, [change.key for change in run])
        else:
            refused = writer.make(context, family, [(c.key, c.new.value.shape) for c in run if c.new is not None])
        _update_snapshot(context, run, refused)
        answers += [refused.get(change.key) for change in run]
    return answers


def _run(change: ClaimChange) -> tuple[ClaimKind, int, bool]:
    return change.key.kind, change.key.family, change.new is None


def _update_snapshot(context: LinuxContext, run: Sequence[ClaimChange], refused: Refused) -> None:
    for change in run:
        if change.key in refused:
            continue
        if change.new is None:
            context.snapshot.pop(change.key)
        else:
            context.snapshot.put(change.key, change.new.value.shape)
