"""`holdfast doctor`: looks at what Holdfast stands on, and says what is wrong and what to do, a line each.

Exit codes: 0 all good, 1 something is wrong, 2 the store cannot be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import click

from holdfast.cli.direct import Reach, state_folder, store_flags
from holdfast.model.bad import Bad, BadReason
from holdfast.model.kinds import KINDS
from holdfast.model.region import Region
from holdfast.runtime.memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import Status, Store
from holdfast.store.binary import objection
from holdfast.store.identity import Verdict, judge, read_identity

CANNOT_TELL = 2
_BAD_SHOWN = 10
_STALE_REVISIONS = 1_000
_QUOTA = 2 << 30
_NEARLY_FULL = 0.8


class Mark(Enum):
    GOOD = "ok  "
    NOTE = "note"
    WRONG = "BAD "


@dataclass(frozen=True, slots=True)
class Finding:
    mark: Mark
    what: str
    sentence: str


@click.command()
@store_flags
def doctor(**given: str | None) -> None:
    """Check what Holdfast stands on: the store, its version, its identity, unreadable keys."""
    reach = Reach(given)
    memory = StoreMemory(state_folder(reach), "server")
    try:
        findings = reach.ask(lambda store: examine(store, reach.region, memory))
    except click.ClickException as error:
        click.echo(f"{Mark.WRONG.value}  store      {error.message}")
        raise click.exceptions.Exit(CANNOT_TELL) from error
    for finding in findings:
        click.echo(f"{finding.mark.value}  {finding.what:<10} {finding.sentence}")
    raise click.exceptions.Exit(int(any(finding.mark is Mark.WRONG for finding in findings)))


async def examine(store: Store, region: Region, memory: StoreMemory) -> list[Finding]:
    """Everything that can be said of the store from here."""
    members = await store.status()
    findings = [*_versions(members), *_agreement(members), *_space(members, await store.alarms())]
    findings.append(await _identity(store, region, memory))
    return findings + await _bad_keys(store, region)


def _versions(members: Sequence[Status]) -> Iterator[Finding]:
    for member in members:
        numbers = tuple(int(part) for part in member.version.split("-")[0].split(".")[:3])
        wrong = objection((numbers[0], numbers[1], numbers[2])) if len(numbers) == 3 else None
        mark = Mark.WRONG if wrong else Mark.GOOD
        yield Finding(mark, "etcd", wrong or f"{member.endpoint} runs etcd {member.version}")


def _agreement(members: Sequence[Status]) -> Iterator[Finding]:
    """One cluster, with a leader, and nobody far behind."""
    if len({member.cluster_id for member in members}) > 1:
        yield Finding(Mark.WRONG, "cluster", "the endpoints belong to different clusters: name members of one only")
    head = max(member.revision for member in members)
    for member in members:
        if not member.leader_id:
            yield Finding(Mark.WRONG, "cluster", f"{member.endpoint} sees no leader: the cluster has lost its majority")
        elif head - member.revision > _STALE_REVISIONS:
            behind = head - member.revision
            yield Finding(Mark.WRONG, "cluster", f"{member.endpoint} is {behind:,} revisions behind: check its disk")
    yield Finding(Mark.GOOD, "cluster", f"{len(members)} of its members answer, revision {head:,}")


def _space(members: Sequence[Status], alarms: Sequence[str]) -> Iterator[Finding]:
    if "NOSPACE" in alarms:
        yield Finding(
            Mark.WRONG,
            "space",
            "etcd is out of space, nothing can be written: compact and defragment it, then `etcdctl alarm disarm`",
        )
    largest = max(member.db_size for member in members)
    mark = Mark.WRONG if largest > _NEARLY_FULL * _QUOTA else Mark.GOOD
    yield Finding(mark, "space", f"{largest / 2**20:,.1f} MiB in use (etcd's default quota is {_QUOTA // 2**30} GiB)")


async def _identity(store: Store, region: Region, memory: StoreMemory) -> Finding:
    try:
        remembered = memory.recall()
    except MemoryUnreadable as unreadable:
        return Finding(Mark.WRONG, "identity", str(unreadable))
    said = judge(remembered, await read_identity(store, region))
    wrong = said.verdict in (Verdict.FOREIGN, Verdict.RESTORED)
    opens = f"; opens by: {said.opens}" if said.opens else ""
    return Finding(Mark.WRONG if wrong else Mark.GOOD, "identity", said.sentence + opens)


async def _bad_keys(store: Store, region: Region) -> list[Finding]:
    bad: dict[bytes, Bad] = {}
    count = 0
    for kind in KINDS:
        async for page in store.list(kind.prefix(region)):
            for entry in page.entries:
                found = kind.parse(entry.key, region)
                if isinstance(found, Bad) and found.reason is BadReason.OTHER_KIND:
                    continue
                count += 1
                value = found if isinstance(found, Bad) else kind.decode(entry.key, entry.value)
                if isinstance(value, Bad):
                    bad[entry.key] = value
    if not bad:
        return [Finding(Mark.GOOD, "keys", f"all {count:,} keys of ours can be read")]
    lines = [
        Finding(Mark.WRONG, "keys", f"{key.decode(errors='replace')}: {one.reason.value} ({one.detail})")
        for key, one in sorted(bad.items())[:_BAD_SHOWN]
    ]
    if len(bad) > _BAD_SHOWN:
        lines.append(Finding(Mark.WRONG, "keys", f"… and {len(bad) - _BAD_SHOWN:,} more that cannot be read"))
    return lines
