"""`holdfast ignore`: leave an object of the store alone that the inventory does not want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.change.inventory import control_session, kind_named
from holdfast.cli.common.config_flags import configuration_flags
from holdfast.config import FlagValue
from holdfast.inventory.edit.ignored import IgnoredEditor
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.runtime.caller import this_user
from holdfast.server.syncer.keys import RegionKeys


@click.command()
@click.argument("key", nargs=-1)
@click.option("--reason", help="Why; recorded with your name.")
@click.option("--stop", is_flag=True, help="Ignore KEY no longer.")
@click.option("--list", "listed", is_flag=True, help="Show ignored keys, who ignores them and why.")
@configuration_flags
def ignore(
    key: tuple[str, ...],
    reason: str | None,
    stop: bool,
    listed: bool,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Leave the object KEY of the store alone: it is neither deleted nor held, until --stop.

    KEY is as `holdfast diff inventory` shows it, such as `endpoint r1-holdfast-web-eth0`, or the key in etcd.
    """
    if listed == bool(key) or (listed and stop):
        raise click.UsageError("give either KEY or --list.")
    if key and not stop and not (reason and reason.strip()):
        raise click.UsageError("to ignore an object, give --reason; it is recorded with your name.")
    with control_session(config_file, settings) as opened:
        ignored, layout = IgnoredEditor(opened.inventory), RegionKeys(opened.region, opened.inventory.kinds)
        if listed:
            for one in ignored.listed():
                shown = layout.show(one.key) if layout.has(one.key) else one.key.decode(errors="backslashreplace")
                click.echo(f"{shown}  by {one.who} at {one.at:%Y-%m-%dT%H:%M:%S}Z: “{one.why}”")
            return
        meant = parse_key(" ".join(key), layout, opened.inventory.kinds)
        if stop:
            ignored.end(meant)
            click.echo(f"{layout.show(meant)} is no longer ignored", err=True)
        else:
            ignored.add(meant, who=this_user(), why=(reason or "").strip())
            shown = layout.show(meant)
            click.echo(f"{shown} is ignored; end it with: holdfast ignore {shown} --stop", err=True)


def parse_key(text: str, layout: RegionKeys, kinds: Sequence[Kind[Any, Any]]) -> bytes:
    """Return the key in the store that an operator means. Ends the command if there can be no such key."""
    kind, _, name = text.strip().partition(" ")
    region = layout.region
    if text.startswith("/"):
        key = text.strip().encode()
    else:
        key = kind_named(kind, kinds).prefix(region) + name.strip().encode()
    if not layout.has(key):
        prefixes = ", ".join(prefix.decode() for prefix in layout.prefixes)
        raise click.ClickException(
            f"{text} is not a key that Holdfast writes in this region; these begin with {prefixes}"
        )
    found = layout.kind(key).parse(key, region)
    if isinstance(found, Bad):
        raise click.ClickException(
            f"{text} names no {layout.kind(key).name} of the store: write it as holdfast diff inventory shows it"
        )
    return key
