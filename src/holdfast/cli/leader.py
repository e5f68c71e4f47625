"""`holdfast leader`: the current leader, its term, and former leaders with the reason why each term ended.

Reads etcd directly. `holdfast step-down` asks the leader's server to hand over.
"""

from __future__ import annotations

import json
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
from holdfast.cli.common.format import output_flag, short
from holdfast.cli.common.terms import last_known, stale_term
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.leader_history import LEADERSHIP, LeaderHistory, LeaderPeriod
from holdfast.store.api import Store
from holdfast.store.servers import unrenewed_s

NO_LEADER = 1
_TAKEN_OVER_WITHIN = 20.0


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
def leader(last: int, output: str, **given: str | None) -> None:
    """Show the current and former leaders. Reads etcd directly.

    Exits with 1 if there is no leader, with 2 if etcd does not answer; then the last term known here is shown.
    """
    options = EtcdOptions(given)
    try:
        found = options.query(lambda store: read(store, options.region))
    except click.ClickException as error:
        raise CannotTell("; ".join([error.message, *last_known(runtime_folder(None))])) from error
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        click.echo(render(found, last, datetime.now(UTC)), nl=False)
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
    """Hand leadership over to another server. Run it on the leader's machine.

    Refused, with exit code 4, if no other server can take over (holdfast get servers). With --to, other servers hold
    back for some seconds; if NAME does not take over by then, any server may.
    """
    leading = [one for one, about in electors(runtime).items() if about["phase"] == "leading"]
    if not leading:
        raise Refused("no server on this machine leads: run this where holdfast leader says")
    click.echo(request_change(runtime, leading[0], "step-down", reason=reason, to=to), err=True)
    click.echo(_next_leader(runtime, leading[0]), err=True)


def _next_leader(runtime: Path, elector: str) -> str:
    """Wait until another server leads, and return a sentence about it."""
    before = time.monotonic()
    while time.monotonic() - before < _TAKEN_OVER_WITHIN:
        about = send_command(runtime, elector, "about")
        took = time.monotonic() - before
        if about["phase"] != "leading" and about["leader"] not in ("", about["name"]):
            return f"{about['leader']} leads, {took:.1f} s later"
        time.sleep(0.1)
    return f"no other server leads after {_TAKEN_OVER_WITHIN:g} s: see holdfast get servers"
