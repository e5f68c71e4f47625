"""`holdfast doctor`: looks at what Holdfast stands on, and says what is wrong and what to do, a line each.

Exit codes: 0 all good, 1 something is wrong, 2 the store cannot be asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from holdfast.cli.common.etcd import EtcdOptions, asked, state_folder, store_flags
from holdfast.cli.doctor import balancer as doctor_balancer
from holdfast.cli.doctor.finding import Finding, Severity
from holdfast.config.schema.scalars import printable
from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.region import Region
from holdfast.model.kinds import KINDS
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import MemberStatus, Store, StoreAway, StoreError
from holdfast.store.embedded.binary import objection, parse_version
from holdfast.store.identity import Judgement, StoreIdentity, StoreVerdict, judge, read_identity

CANNOT_TELL = 2
_BAD_SHOWN = 10
_STALE_REVISIONS = 1_000
_QUOTA = 2 << 30
_NEARLY_FULL = 0.8
_ROLES = ("server", "agent", "balancer")


@click.command()
@store_flags
def doctor(**given: str | None) -> None:
    """Check what Holdfast stands on: the store, its version, its identity, unreadable keys; the inventory; a balancer's
    machine."""
    reach = EtcdOptions(given)
    balancer = list(doctor_balancer.examine(reach.config.balancer, Path(reach.config.paths.runtime)))
    local = [*balancer, *_inventory(reach)]
    _show(local)
    if balancer and reach.config.balancer.source == "file" and not reach.is_named:
        raise click.exceptions.Exit(int(any(finding.mark is Severity.WRONG for finding in local)))  # it needs no store
    try:
        findings = reach.ask(lambda store: examine(store, reach))
    except click.ClickException as error:
        click.echo(f"{Severity.WRONG.value}  store      {error.message}")
        raise click.exceptions.Exit(CANNOT_TELL) from error
    _show(findings)
    raise click.exceptions.Exit(int(any(finding.mark is Severity.WRONG for finding in [*local, *findings])))


def _inventory(reach: EtcdOptions) -> Sequence[Finding]:
    if reach.config.inventory.database is None:
        return ()
    from holdfast.cli.doctor import inventory as doctor_inventory

    return list(doctor_inventory.examine(reach.config.inventory, reach.region))


def _show(findings: Sequence[Finding]) -> None:
    for finding in findings:
        click.echo(f"{finding.mark.value}  {finding.what:<10} {finding.sentence}")


async def examine(store: Store, reach: EtcdOptions) -> list[Finding]:
    """Everything that can be said of the store from here."""
    members = await store.status()
    findings = [*_versions(members), *_agreement(members), *[one async for one in _silent(members, reach)]]
    findings += _space(members, await store.alarms())
    findings += _identity(await read_identity(store, reach.region), state_folder(reach))
    return findings + await _bad_keys(store, reach.region)


def _versions(members: Sequence[MemberStatus]) -> Iterator[Finding]:
    for member in members:
        version = parse_version(member.version)
        wrong = objection(version) if version else None
        mark = Severity.WRONG if wrong else Severity.GOOD if version else Severity.NOTE
        yield Finding(mark, "etcd", f"{member.endpoint}: {wrong or f'etcd {member.version}'}")


def _agreement(members: Sequence[MemberStatus]) -> Iterator[Finding]:
    """One cluster, with a leader, and nobody far behind."""
    if len({member.cluster_id for member in members}) > 1:
        yield Finding(Severity.WRONG, "cluster", "the endpoints belong to different clusters: name members of one only")
    head = max(member.revision for member in members)
    for member in members:
        if not member.leader_id:
            yield Finding(
                Severity.WRONG, "cluster", f"{member.endpoint} sees no leader: the cluster has lost its majority"
            )
        elif head - member.revision > _STALE_REVISIONS:
            behind = head - member.revision
            yield Finding(
                Severity.WRONG, "cluster", f"{member.endpoint} is {behind:,} revisions behind: check its disk"
            )
    yield Finding(Severity.GOOD, "cluster", f"endpoints that answer: {len(members)}, revision {head:,}")


async def _silent(members: Sequence[MemberStatus], reach: EtcdOptions) -> AsyncIterator[Finding]:
    """Endpoints that did not answer while others did; each is asked alone for its reason."""
    answered = {member.endpoint for member in members}
    for url in reach.config.store.endpoints:
        if url.rstrip("/") in answered:
            continue
        try:
            await asked(replace(reach.connection(), endpoints=(url,)), lambda alone: alone.status())
        except (StoreAway, StoreError) as error:
            yield Finding(Severity.WRONG, "cluster", error.why if isinstance(error, StoreAway) else str(error))
        else:
            yield Finding(Severity.NOTE, "cluster", f"{url} answers only now and then: check its load and its network")


def _space(members: Sequence[MemberStatus], alarms: Sequence[str]) -> Iterator[Finding]:
    if "CORRUPT" in alarms:
        yield Finding(
            Severity.WRONG,
            "data",
            "etcd says that its members' data differ (CORRUPT): remove the member that is wrong and add it anew",
        )
    if "NOSPACE" in alarms:
        yield Finding(
            Severity.WRONG,
            "space",
            "etcd is out of space, nothing can be written: compact and defragment it, then `etcdctl alarm disarm`",
        )
        return
    largest = max(member.db_size for member in members)
    size = f"{largest / 2**20:,.1f} MiB on disk"
    if largest > _NEARLY_FULL * _QUOTA:
        todo = "compact and defragment it, unless its --quota-backend-bytes is far above that"
        yield Finding(Severity.NOTE, "space", f"{size}, near etcd's default quota of {_QUOTA // 2**30} GiB: {todo}")
    else:
        yield Finding(Severity.GOOD, "space", f"{size} (etcd's default quota is {_QUOTA // 2**30} GiB)")


def _identity(found: StoreIdentity, state: Path) -> Sequence[Finding]:
    """What the store is to each role that remembers one on this machine."""
    said: list[Judgement] = []
    findings: list[Finding] = []
    for role in _ROLES:
        try:
            remembered = StoreMemory(state, role).recall()
        except MemoryUnreadable as unreadable:
            findings.append(Finding(Severity.WRONG, "identity", str(unreadable)))
        else:
            said += [judge(remembered, found)] if remembered else []
    if not said and not findings:
        said.append(judge(None, found))
    return findings + [_judged(one) for one in dict.fromkeys(said)]


def _judged(said: Judgement) -> Finding:
    mark = {StoreVerdict.OURS: Severity.GOOD, StoreVerdict.UNNAMED: Severity.NOTE}.get(said.verdict, Severity.WRONG)
    opens = f"; opens by: {said.opens}" if said.opens else ""
    return Finding(mark, "identity", said.sentence + opens)


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
        return [Finding(Severity.GOOD, "keys", f"all {count:,} keys of ours can be read")]
    lines = [
        Finding(Severity.WRONG, "keys", f"{printable(str(one))}: mend or delete it")
        for _, one in sorted(bad.items())[:_BAD_SHOWN]
    ]
    if len(bad) > _BAD_SHOWN:
        lines.append(Finding(Severity.WRONG, "keys", f"… and {len(bad) - _BAD_SHOWN:,} more that cannot be read"))
    return lines
