"""`holdfast leader`: the current leader, its term, and former leaders with the reason why each term ended.

Reads etcd directly. `holdfast step-down` asks the leader's server to hand over.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from holdfast.cli.common.control_socket import (
    CannotTell,
    Refused,
    electors,
    request_change,
    runtime_flag,
    runtime_folder,
    send_command,
)
from holdfast.cli.common.etcd import EtcdOptions, store_flags
from holdfast.cli.common.format import DOCUMENTS, fitted, output_flag, print_document, short, terminal_width, watchable
from holdfast.cli.common.terms import last_known, stale_term
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.leader_history import LEADERSHIP, LeaderHistory, LeaderPeriod
from holdfast.store.api import Store
from holdfast.store.servers import unrenewed_s

NO_LEADER = 1
_TAKEN_OVER_WITHIN = 30.0
_END = 57
"""Column at which the reason of an end begins."""


class LeaderView(msgspec.Struct, frozen=True):
    """Leader and former leaders, as `-o json` prints them."""

    leader: Leader | None
    term: int
    history: tuple[LeaderPeriod, ...]
    unrenewed_s: float = 0.0
    """Age of the last renewal of a term that is stale; 0 while it is renewed in time."""


@click.command()
@click.option("-n", "--last", default=10, show_default=True, type=click.IntRange(min=0), help="Number of terms.")
@output_flag
@store_flags
@watchable
def leader(last: int, output: str, **given: str | None) -> None:
    """Show the current and former leaders. Reads etcd directly.

    Exits with 1 if there is no leader, with 3 if etcd does not answer; then the last term known here is shown.
    """
    options = EtcdOptions(given, in_diagnosis=True)
    if options.rejected is not None:
        first = str(options.rejected).splitlines()[0]
        click.echo(f"Warning: {first}; etcd is looked for as the flags and the defaults say", err=True)
    try:
        found = options.query(lambda store: read(store, options.region))
    except click.ClickException as error:
        raise CannotTell("; ".join([error.message, *last_known(runtime_folder(None))])) from error
    if output in DOCUMENTS:
        print_document(msgspec.to_builtins(found), output)
    else:
        for line in render(found, last, datetime.now(UTC)).splitlines():
            for part in fitted(line, terminal_width(), _END):
                click.echo(part)
    raise click.exceptions.Exit(0 if found.leader else NO_LEADER)


async def read(store: Store, region: Region) -> LeaderView:
    key, history_key = LEADER.key(region, "leader"), LEADERSHIP.key(region, "leadership")
    entry, recorded = await store.get(key), await store.get(history_key)
    current = LEADER.decode(key, entry.value) if entry else None
    history = LEADERSHIP.decode(history_key, recorded.value) if recorded else LeaderHistory()
    return LeaderView(
        leader=None if isinstance(current, Bad) else current,
        term=entry.create_revision if entry else 0,
        history=() if isinstance(history, Bad) else history.periods,
        unrenewed_s=await unrenewed_s(store, entry),
    )


def render(found: LeaderView, last: int, now: datetime) -> str:
    lines = []
    if found.leader is None:
        lines.append("no leader" if not found.term else f"the leader key of term {found.term} is unreadable")
    else:
        current = found.leader
        lasting = f", for {short((now - current.since).total_seconds())}" if current.since else ""
        lines.append(f"{current.name} leads, term {found.term}{lasting} (host {current.host}, pid {current.pid})")
    if found.unrenewed_s:
        lines.append(stale_term(found.term, found.unrenewed_s))
    periods = found.history[-last:] if last else ()
    if periods:
        lines += ["", f"{'SERVER':<16}{'TERM':>12}  {'BEGAN':<17}{'LASTED':>8}  END"]
    for period in reversed(periods):
        lasted = short(((period.ended or now) - period.began).total_seconds())
        why = period.why if period.ended else "current leader"
        lines.append(f"{period.name:<16}{period.term:>12}  {period.began:%m-%d %H:%M:%SZ}  {lasted:>8}  {why}")
    return "\n".join(lines) + "\n"


@click.command("step-down")
@click.option("--to", metavar="NAME", help="Server that takes over. Default: any that can.")
@click.option("--reason", required=True, help="Why; recorded with your name.")
@runtime_flag
def step_down(to: str | None, reason: str, runtime: Path) -> None:
    """Hand leadership over to another server. Run it where a server runs; a leader elsewhere is asked through etcd.

    Refused, with exit code 4, if no other server can take over (holdfast get servers). With --to, other servers hold
    back for some seconds; if NAME does not take over by then, any server may. Exits with 1 if none leads within 30 s.
    """
    here = electors(runtime)
    if not here:
        raise Refused("no server runs on this machine: run this where one runs (holdfast get servers)")
    leading = next((one for one, about in here.items() if about["phase"] == "leading"), None)
    asked = leading or next(iter(here))
    command = "step-down" if leading else "step-down-elsewhere"
    click.echo(request_change(runtime, asked, command, reason=reason, to=to), err=True)
    click.echo(_next_leader(runtime, asked, before=here[asked]["leader"]), err=True)


def _next_leader(runtime: Path, elector: str, before: str) -> str:
    """Wait until another server leads, and return a sentence about it."""
    began = time.monotonic()
    while time.monotonic() - began < _TAKEN_OVER_WITHIN:
        leader, took = send_command(runtime, elector, "about")["leader"], time.monotonic() - began
        if leader not in ("", before):
            return f"{leader} leads, {took:.1f} s later"
        time.sleep(0.1)
    raise click.ClickException(f"no other server leads after {_TAKEN_OVER_WITHIN:g} s: see holdfast get servers")
