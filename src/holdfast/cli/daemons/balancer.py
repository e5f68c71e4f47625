"""`holdfast balancer`: run the load balancer, check its configuration, or show the frontends of a running one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.config_flags import (
    INVALID,
    UNREADABLE,
    checked,
    configuration_flags,
    effective,
    http_flag,
    unusable,
)
from holdfast.cli.common.control_socket import request_change, runtime_flag, send_command
from holdfast.cli.common.format import DOCUMENTS, counted, output_flag, print_document, release_lines, short, watchable
from holdfast.config import FlagValue, Loaded

ROLE = "balancer"
WORKER = "vips"
_SHOWN = 20
_CHECK_CODES = {UNREADABLE: 1, INVALID: 2}
"""Exit codes of `--check`, which are those of maglevd, by those of every other command."""


@click.group(invoke_without_command=True)
@click.option("--check", "to_check", metavar="FILE", help="Check FILE and exit: 0 valid, 1 unreadable, 2 invalid.")
@configuration_flags
@http_flag
@click.pass_context
def balancer(
    context: click.Context,
    to_check: str | None,
    config_file: str | None,
    settings: Sequence[FlagValue],
    http: Sequence[FlagValue],
) -> None:
    """Run the load balancer, or with a command inspect the running one."""
    if context.invoked_subcommand is not None:
        return
    if to_check is not None:
        loaded = _checked(to_check, settings).config.balancer
        served = f"{counted(len(loaded.frontends), 'frontend')}, {counted(len(loaded.backends), 'backend')}"
        click.echo(f"{to_check} is valid: {served}.", err=True)
        return
    from holdfast.balancer.dataplane.open import refusal
    from holdfast.balancer.worker import WORKERS
    from holdfast.cli.daemons.run import run_role

    if (sentence := refusal(effective(config_file, settings).config.balancer.dataplane)) is not None:
        raise click.ClickException(sentence)
    run_role(ROLE, WORKERS, config_file, (*settings, *http), unusable=unusable)


def _checked(file: str, settings: Sequence[FlagValue]) -> Loaded:
    try:
        return checked(file, settings)
    except click.exceptions.Exit as ended:
        raise click.exceptions.Exit(_CHECK_CODES[ended.exit_code]) from ended


@balancer.command()
@output_flag
@runtime_flag
@watchable
def status(output: str, runtime: Path) -> None:
    """Show frontends, their pools, and the state of the backends."""
    shown = send_command(runtime, WORKER, "balancer")
    print_document(shown, output) if output in DOCUMENTS else click.echo(render(shown), nl=False)


@balancer.command(short_help="Show pending changes, and what holds them.")
@output_flag
@runtime_flag
@watchable
def plan(output: str, runtime: Path) -> None:
    """Show what differs from the desired state, what holds it, and how many flows it would move."""
    found = send_command(runtime, WORKER, "moves")
    if output in DOCUMENTS:
        print_document(found, output)
    elif not found["objects"]:
        click.echo("everything is in sync", err=True)
    else:
        for line in _planned(found):
            click.echo(line)


@balancer.command(short_help="Show the traffic of each backend.")
@output_flag
@runtime_flag
@watchable
def traffic(output: str, runtime: Path) -> None:
    """Show the traffic of each backend: current flows, and flows, or packets and bytes, since it was programmed."""
    rows = send_command(runtime, WORKER, "traffic")
    if output in DOCUMENTS:
        print_document(rows, output)
    elif not rows:
        click.echo("no traffic: the dataplane has no entries, or does not count", err=True)
    else:
        since = {"packets": 13, "bytes": 16} if any(one["packets"] for one in rows) else {"opened": 13}
        columns = {"flows": 8, "unanswered": 10, **since}
        heads = " ".join(f"{name.upper():>{width}}" for name, width in columns.items())
        click.echo(f"{'FRONTEND':<14} {'BACKEND':<14} {heads}")
        for one in rows:
            counts = " ".join(f"{one[name]:>{width},}" for name, width in columns.items())
            click.echo(f"{one['frontend']:<14} {one['backend']:<14} {counts}")


@balancer.command()
@runtime_flag
def sync(runtime: Path) -> None:
    """Compare everything with the dataplane now."""
    click.echo(request_change(runtime, WORKER, "sync"), err=True)


def render(shown: dict[str, Any]) -> str:
    """Render `balancer status`. Pure."""
    digests = shown["digests"]
    lines = [f"warm-up {shown['warm_up']}   dataplane {shown['dataplane']}   table {digests['table']}"]
    if shown["prober_silent_s"] is not None:
        lines.append(f"the prober has been silent for {short(shown['prober_silent_s'])}; health states are frozen")
    if (tracked := shown.get("tracked")) and tracked["nearly_full"]:
        lines.append(f"connection tracking is nearly full: {tracked['flows']:,} of {tracked['most']:,} connections")
    if shown.get("store_problem"):
        lines.append(shown["store_problem"])
    for frontend in shown["frontends"]:
        lines += ["", *_frontend(frontend)]
    lines += [f"{name} is not served: {why}" for name, why in shown["missing"].items()]
    return "\n".join(lines) + "\n"


def _frontend(frontend: dict[str, Any]) -> list[str]:
    panic = ", panic: all its backends serve, healthy or not" if frontend["panic"] else ""
    held = f", {paused(frontend['paused'])}" if frontend.get("paused") else ""
    missing = "" if frontend["programmed"] else ", not programmed"
    address = f", {announced(frontend['announce'])}" if frontend.get("announce") else ""
    lines = [f"{frontend['name']:<20} {frontend['vip']:<28} {frontend['state']}{panic}{held}{missing}{address}"]
    for index, pool in enumerate(frontend["pools"]):
        lines += [f"  pool {index} {pool_role(frontend, index):<8} {_member(member)}" for member in pool]
    for one in frontend.get("leaving", ()):
        lines.append(f"  leaving{'':<9} {'':<16} {one['address']:<32} weight {one['programmed']} → –")
    return lines


def pool_role(frontend: dict[str, Any], index: int) -> str:
    return "active" if index == frontend["active_pool"] else "standby"


def announced(announce: dict[str, Any]) -> str:
    """Format the state of the frontend's address on its device."""
    return f"{'announced' if announce['announced'] else 'not announced'} on {announce['device']}"


def paused(pause: dict[str, Any]) -> str:
    """Format a pause: operator, reason and expiry."""
    until = f" until {pause['until']}" if pause["until"] else ""
    return f"paused{until} by {pause['who']}: “{pause['why']}”"


def _member(member: dict[str, Any]) -> str:
    programmed = "–" if member["programmed"] is None else str(member["programmed"])
    weight = programmed if programmed == str(member["wanted"]) else f"{programmed} → {member['wanted']}"
    return f"{member['backend']:<16} {member['address']:<22} {member['state']:<9} weight {weight}"


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
    return [*lines, *release_lines(found["objects"])]
