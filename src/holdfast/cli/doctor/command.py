"""`holdfast doctor`: checks the store, the inventory and the machine of an agent or balancer, one line per finding.

Exit codes: 0 everything is ok, 1 something is wrong, 3 the store is unreachable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from holdfast.agent import ROLE
from holdfast.cli.common.control_socket import CANNOT_TELL, runtime_folder
from holdfast.cli.common.etcd import EtcdOptions, query_store, store_flags
from holdfast.cli.common.format import (
    DOCUMENTS,
    Paint,
    output_flag,
    paint,
    plain,
    print_document,
    terminal_width,
    watchable,
    wrapped,
)
from holdfast.cli.doctor import Finding, Severity, access, agent_watch, daemons
from holdfast.cli.doctor import balancer as balancer_checks
from holdfast.cli.doctor import identity as identity_checks
from holdfast.config import ConfigRejected
from holdfast.config.schema.scalars import printable
from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.region import Region
from holdfast.model.kinds import KINDS
from holdfast.store.api import MemberStatus, Store, StoreAway, StoreError
from holdfast.store.embedded.binary import objection, parse_version

_BAD_SHOWN = 10
_STALE_REVISIONS = 1_000
_QUOTA = 2 << 30
_NEARLY_FULL = 0.8


@click.command()
@output_flag
@click.option("--runtime", metavar="DIR", help="Runtime folder of the daemons to check. Default: paths.runtime.")
@store_flags
@watchable
def doctor(output: str, runtime: str | None, **given: str | None) -> None:
    """Check what Holdfast depends on: etcd and its contents, the inventory, the machine of an agent or balancer.

    Exits with 0 if everything is ok, 1 if something is wrong, 3 if the store is unreachable. A configuration that
    cannot be used is one of the findings, and the defaults are checked instead.
    """
    show = _Output(output)
    options = EtcdOptions(given, in_diagnosis=True)
    folder = Path(runtime or options.config.paths.runtime)
    balancer = list(balancer_checks.examine(options.config.balancer, folder))
    about = agent_watch.about_agent(folder)
    watch = () if about is None else agent_watch.watch(about)
    config = [] if options.rejected is None else [_rejected(options.rejected)]
    local = [*config, *balancer, *_agent(options, folder, about), *watch, *_inventory(options)]
    local += daemons.examine(runtime_folder(runtime))
    show.add(local)
    if balancer and options.config.balancer.source == "file" and not options.is_named:
        show.end(_exit_code(local))  # such a balancer needs no store
    try:
        findings = options.query(lambda store: examine(store, options))
    except click.ClickException as error:
        show.add([Finding(Severity.WRONG, "store", error.message)])
        show.end(CANNOT_TELL)
    show.add(findings)
    show.end(_exit_code([*local, *findings]))


def _rejected(refused: ConfigRejected) -> Finding:
    sentence = "; ".join(str(refused).splitlines())
    return Finding(Severity.WRONG, "config", f"{sentence}; the defaults are checked instead")


class _Output:
    """Prints findings as they come; a document at the end."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._found: list[Finding] = []

    def add(self, findings: Sequence[Finding]) -> None:
        self._found += findings
        if self._output not in DOCUMENTS:
            width = terminal_width()
            for finding in findings:
                for line in rendered(finding, width, paint):
                    click.echo(line)

    def end(self, exit_code: int) -> NoReturn:
        if self._output in DOCUMENTS:
            found = [
                {"severity": one.severity.name.lower(), "subject": one.subject, "sentence": one.sentence}
                for one in self._found
            ]
            print_document({"exit_code": exit_code, "findings": found}, self._output)
        raise click.exceptions.Exit(exit_code)


def rendered(finding: Finding, width: int | None = None, paint: Paint = plain) -> list[str]:
    """Return the lines of a finding. Pure."""
    head = f"{finding.severity.value}  {finding.subject:<10} "
    lines = wrapped(head, finding.sentence, width)
    colour = {Severity.GOOD: "green", Severity.NOTE: "yellow", Severity.WRONG: "red"}[finding.severity]
    word = finding.severity.value
    return [paint(word, colour) + lines[0].removeprefix(word), *lines[1:]]


def _exit_code(findings: Sequence[Finding]) -> int:
    return int(any(finding.severity is Severity.WRONG for finding in findings))


def _agent(options: EtcdOptions, runtime: Path, about: dict[str, Any] | None) -> Sequence[Finding]:
    """Check the machine if an agent has programmed it since the boot."""
    config = options.config
    if config.agent.dataplane.kind != "linux" or not (runtime / f"{ROLE}.journal").exists():
        return ()
    from holdfast.cli.doctor import agent as agent_checks

    uplinks = [] if about is None else about.get("uplinks", [])
    return list(agent_checks.examine(config.agent, [(family, name) for family, name in uplinks]))


def _inventory(options: EtcdOptions) -> Sequence[Finding]:
    if options.config.inventory.database is None:
        return ()
    from holdfast.cli.doctor import inventory as inventory_checks

    return list(inventory_checks.examine(options.config.inventory, options.region))


async def examine(store: Store, options: EtcdOptions) -> list[Finding]:
    """Check the store."""
    members = await store.status()
    findings = [*_versions(members), *access.examine(options.config.store)]
    findings += [*_agreement(members), *[one async for one in _silent(members, options)]]
    findings += _space(members, await store.alarms())
    if options.config.inventory.is_neutron:
        from holdfast.cli.doctor import inventory as inventory_checks

        findings.append(await inventory_checks.examine_leader(store, options.region))
    findings += await identity_checks.examine(store, options.region, options.state_folder)
    return findings + await unreadable_keys(store, options.region)


def _versions(members: Sequence[MemberStatus]) -> Iterator[Finding]:
    for member in members:
        version = parse_version(member.version)
        wrong = objection(version) if version else None
        severity = Severity.WRONG if wrong else Severity.GOOD if version else Severity.NOTE
        yield Finding(severity, "etcd", f"{member.endpoint}: {wrong or f'etcd {member.version}'}")


def _agreement(members: Sequence[MemberStatus]) -> Iterator[Finding]:
    """Check that the members form one cluster with a leader, and that none is far behind."""
    if len({member.cluster_id for member in members}) > 1:
        sentence = "the endpoints belong to different clusters: configure members of one cluster only"
        yield Finding(Severity.WRONG, "cluster", sentence)
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


async def _silent(members: Sequence[MemberStatus], options: EtcdOptions) -> AsyncIterator[Finding]:
    """Ask each endpoint that did not answer again, alone, to learn why."""
    answered = {member.endpoint for member in members}
    for url in options.config.store.endpoints:
        if url.rstrip("/") in answered:
            continue
        try:
            await query_store(replace(options.connection(), endpoints=(url,)), lambda alone: alone.status())
        except (StoreAway, StoreError) as error:
            yield Finding(Severity.WRONG, "cluster", error.why if isinstance(error, StoreAway) else str(error))
        else:
            yield Finding(Severity.NOTE, "cluster", f"{url} answers intermittently: check its load and its network")


def _space(members: Sequence[MemberStatus], alarms: Sequence[str]) -> Iterator[Finding]:
    if "CORRUPT" in alarms:
        yield Finding(
            Severity.WRONG,
            "data",
            "etcd reports that its members' data differ (CORRUPT): remove the corrupt member and add it again",
        )
    if "NOSPACE" in alarms:
        yield Finding(
            Severity.WRONG,
            "space",
            "etcd is out of space and accepts no writes: compact and defragment it, then run etcdctl alarm disarm",
        )
        return
    largest = max(member.db_size for member in members)
    size = f"{largest / 2**20:,.1f} MiB on disk"
    if largest > _NEARLY_FULL * _QUOTA:
        advice = "compact and defragment it, unless its --quota-backend-bytes is far above that"
        yield Finding(Severity.NOTE, "space", f"{size}, near etcd's default quota of {_QUOTA // 2**30} GiB: {advice}")
    else:
        yield Finding(Severity.GOOD, "space", f"{size} (etcd's default quota is {_QUOTA // 2**30} GiB)")


async def unreadable_keys(store: Store, region: Region) -> list[Finding]:
    bad: dict[bytes, Bad] = {}
    count = 0
    for kind in KINDS:
        async for page in store.list(kind.prefix(region)):
            for entry in page.entries:
                found = kind.read(entry.key, entry.value, region)
                if not isinstance(found, Bad):
                    count += 1
                elif found.reason is not BadReason.OTHER_KIND:
                    bad[entry.key] = found
    if not bad:
        return [Finding(Severity.GOOD, "keys", f"all {count:,} keys are readable")]
    lines = [
        Finding(Severity.WRONG, "keys", f"{printable(str(one))}: fix or delete it")
        for _, one in sorted(bad.items())[:_BAD_SHOWN]
    ]
    if len(bad) > _BAD_SHOWN:
        lines.append(Finding(Severity.WRONG, "keys", f"… and {len(bad) - _BAD_SHOWN:,} more unreadable keys"))
    return lines
