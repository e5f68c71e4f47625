"""`holdfast balancer`: runs the load balancer, checks its configuration, shows what it serves and would change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.config_flags import configuration_flags, effective
from holdfast.cli.common.control_socket import answer, label, nobody, roles, runtime_flag, tell
from holdfast.cli.common.format import short
from holdfast.config import FlagValue
from holdfast.runtime.control import Request

ROLE = "balancer"
WORKER = "vips"
_SHOWN = 20

output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Form of the output."
)


@click.group(invoke_without_command=True)
@click.option(
    "--check", "checked", metavar="FILE", help="Only check FILE: exit with 0, 1 (unreadable) or 2 (senseless)."
)
@configuration_flags
@click.pass_context
def balancer(
    context: click.Context, checked: str | None, config_file: str | None, settings: Sequence[FlagValue]
) -> None:
    """Run the load balancer, or with a command: look at the one that runs."""
    if context.invoked_subcommand is not None:
        return
    if checked is not None:
        loaded = effective(checked, settings).config.balancer
        served = f"{len(loaded.frontends)} frontends, {len(loaded.backends)} backends"
        click.echo(f"{checked} is good: {served}.", err=True)
        return
    from holdfast.balancer.dataplane.open import refusal
    from holdfast.balancer.worker import WORKERS
    from holdfast.cli.daemons.run import run_role

    if (sentence := refusal(effective(config_file, settings).config.balancer.dataplane)) is not None:
        raise click.ClickException(sentence)
    run_role(ROLE, WORKERS, config_file, settings)


@balancer.command()
@output
@runtime_flag
def status(output: str, runtime: Path) -> None:
    """What is served, by whom, and how the backends are."""
    shown = tell(runtime, WORKER, "balancer")
    click.echo(json.dumps(shown, indent=2) if output == "json" else render(shown), nl=output == "json")


@balancer.command()
@output
@runtime_flag
def plan(output: str, runtime: Path) -> None:
    """What is not as wanted now, what stands in its way, and how much it would move."""
    found = tell(runtime, WORKER, "moves")
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    elif not found["objects"]:
        click.echo("everything is as wanted", err=True)
    else:
        for line in _planned(found):
            click.echo(line)


@balancer.command()
@output
@runtime_flag
def traffic(output: str, runtime: Path) -> None:
    """What passes to each backend: flows now, packets and bytes since it was programmed."""
    rows = tell(runtime, WORKER, "traffic")
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
    elif not rows:
        click.echo("nothing is counted: the dataplane holds no entry, or carries no traffic", err=True)
    else:
        click.echo(f"{'FRONTEND':<20} {'BACKEND':<20} {'FLOWS':>9} {'UNANSWERED':>11} {'PACKETS':>14} {'BYTES':>18}")
        for one in rows:
            counts = f"{one['flows']:>9,} {one['unanswered']:>11,} {one['packets']:>14,} {one['bytes']:>18,}"
            click.echo(f"{one['frontend']:<20} {one['backend']:<20} {counts}")


@balancer.command()
@runtime_flag
def sync(runtime: Path) -> None:
    """Compare everything with the dataplane again, now."""
    click.echo(tell(runtime, WORKER, "sync"), err=True)


@balancer.command()
@runtime_flag
def reload(runtime: Path) -> None:
    """Check the configuration and run with it; on any error the running one stays."""
    names = [role for role in roles(runtime) if role.rpartition("/")[2] == ROLE]
    if not names:
        raise nobody(runtime)
    for role in names:
        click.echo(f"{label(role)}: {answer(runtime, role, Request('reload'))}", err=True)


def render(shown: dict[str, Any]) -> str:
    """The page of `balancer status`. Pure."""
    digests = shown["digests"]
    lines = [f"warm-up {shown['warm_up']}   dataplane {shown['dataplane']}   table {digests['table']}"]
    if shown["prober_silent_s"] is not None:
        lines.append(f"the prober has been silent for {short(shown['prober_silent_s'])}: health changes nothing")
    for frontend in shown["frontends"]:
        lines += ["", *_frontend(frontend)]
    lines += [f"{name} is left out: {why}" for name, why in shown["missing"].items()]
    return "\n".join(lines) + "\n"


def _frontend(frontend: dict[str, Any]) -> list[str]:
    panic = ", in panic: all its backends serve, dead or alive" if frontend["panic"] else ""
    held = f", {paused(frontend['paused'])}" if frontend.get("paused") else ""
    unmade = "" if frontend["programmed"] else ", not programmed"
    led = f", {announced(frontend['announce'])}" if frontend.get("announce") else ""
    lines = [f"{frontend['name']:<20} {frontend['vip']:<28} {frontend['state']}{panic}{held}{unmade}{led}"]
    for index, pool in enumerate(frontend["pools"]):
        role = "serves" if index == frontend["active_pool"] else "stands by"
        lines += [f"  pool {index} {role:<10} {_member(member)}" for member in pool]
    return lines


def announced(announce: dict[str, Any]) -> str:
    """Whether its address is on its device."""
    return f"{'announced' if announce['announced'] else 'not announced'} on {announce['device']}"


def paused(pause: dict[str, Any]) -> str:
    """Who paused it, why, and until when."""
    until = f" until {pause['until']}" if pause["until"] else ""
    return f"paused{until} by {pause['who']}: “{pause['why']}”"


def _member(member: dict[str, Any]) -> str:
    programmed = "–" if member["programmed"] is None else str(member["programmed"])
    weight = programmed if programmed == str(member["wanted"]) else f"{programmed} → {member['wanted']}"
    return f"{member['backend']:<20} {member['address']:<28} {member['state']:<9} weight {weight}"


def _planned(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{one['op']:<8} {one['key']:<52} {short(one['since_s']):>7}  {one['why']}" for one in found["objects"][:_SHOWN]
    ]
    if found["total"] > _SHOWN:
        lines.append(f"… and {found['total'] - _SHOWN:,} more")
    lines += [
        f"moves    {one['vip']}: {one['buckets']:,} of {one['of']:,} buckets, {one['share']:.2%} of new flows"
        for one in found["moves"]
        if one["buckets"]
    ]
    opens = dict.fromkeys(one["opens"] for one in found["objects"] if one["opens"])
    return lines + [f"opens by: {each}" for each in opens]
