"""`holdfast leader`: who leads, in which term, since when, and who led before and why that ended. From etcd itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from holdfast.cli.common.control_socket import runtime_flag, tell, workers
from holdfast.cli.common.etcd import EtcdOptions, store_flags
from holdfast.cli.common.format import short
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.leader_history import LEADERSHIP, LeaderHistory, LeaderPeriod
from holdfast.store.api import Store

NOBODY_LEADS = 1


class LeaderView(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    leader: Leader | None
    term: int
    history: tuple[LeaderPeriod, ...]


@click.command()
@click.option(
    "-n", "--last", default=10, show_default=True, type=click.IntRange(min=0), help="How many reigns to show."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output.")
@store_flags
def leader(last: int, output: str, **given: str | None) -> None:
    """Who leads, and who led before. Asks etcd itself. Exits with 1 when nobody leads."""
    reach = EtcdOptions(given)
    found = reach.ask(lambda store: look(store, reach.region))
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        click.echo(render(found, last, datetime.now(UTC)), nl=False)
    raise click.exceptions.Exit(0 if found.leader else NOBODY_LEADS)


async def look(store: Store, region: Region) -> LeaderView:
    key, history_key = LEADER.key(region, "leader"), LEADERSHIP.key(region, "leadership")
    entry, kept = await store.get(key), await store.get(history_key)
    held = LEADER.decode(key, entry.value) if entry else None
    history = LEADERSHIP.decode(history_key, kept.value) if kept else LeaderHistory()
    return LeaderView(
        leader=None if isinstance(held, Bad) else held,
        term=entry.create_revision if entry else 0,
        history=() if isinstance(history, Bad) else history.periods,
    )


def render(found: LeaderView, last: int, now: datetime) -> str:
    lines = []
    if found.leader is None:
        lines.append("nobody leads" if not found.term else f"term {found.term} has a leader whose key cannot be read")
    else:
        who = found.leader
        lasting = f", for {short((now - who.since).total_seconds())}" if who.since else ""
        lines.append(f"{who.name} leads, term {found.term}{lasting} (host {who.host}, pid {who.pid})")
    reigns = found.history[-last:] if last else ()
    if reigns:
        lines += ["", f"{'SERVER':<16}{'TERM':>12}  {'BEGAN':<20}{'LASTED':>8}  ENDED BECAUSE"]
    for reign in reversed(reigns):
        lasted = short(((reign.ended or now) - reign.began).total_seconds())
        why = reign.why if reign.ended else "it leads"
        lines.append(f"{reign.name:<16}{reign.term:>12}  {reign.began:%m-%d %H:%M:%SZ}    {lasted:>8}  {why}")
    return "\n".join(lines) + "\n"


@click.command("step-down")
@click.option("--reason", required=True, help="Why; it is kept with your name.")
@runtime_flag
def step_down(reason: str, runtime: Path) -> None:
    """Let the leader hand over, if it runs on this machine."""
    electors = [worker for worker in workers(runtime) if worker.rpartition("/")[2] == "elector"]
    leading = [one for one in electors if tell(runtime, one, "about")["phase"] == "leading"]
    if not leading:
        raise click.ClickException("no server of this machine leads; holdfast leader tells who does")
    click.echo(tell(runtime, leading[0], "step-down", reason=reason), err=True)
