"""`holdfast explain` and `history` of an inventory object: its edits, its keys in the store, and pending changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import CannotTell, send_store_query, workers_named
from holdfast.cli.common.format import release_rows, row, short


def query(runtime: Path, kind: str, name: str) -> dict[str, Any]:
    """Ask the syncers here, and return the leader's answer if it runs here. Ends the command if none knows it."""
    known = workers_named(runtime, "syncer")
    if not known:
        raise CannotTell("no server with an inventory is running here: run this where holdfast leader says")
    refusals: list[click.ClickException] = []
    answers: list[dict[str, Any]] = []
    for syncer in known:
        try:
            answers.append(send_store_query(runtime, syncer, "explain", kind=kind, name=name))
        except click.ClickException as refused:
            refusals.append(refused)
    if not answers:
        raise refusals[0]
    return max(answers, key=lambda one: bool(one["leads"]))


def query_if_known(runtime: Path, kind: str, name: str) -> dict[str, Any] | None:
    """Return the same; None if no server of this machine knows the object."""
    try:
        return query(runtime, kind, name)
    except click.ClickException:
        return None


def lines(one: dict[str, Any]) -> Iterator[str]:
    yield _headline(one)
    yield ""
    changes = one["changes"]
    if one["revision"] is None:
        yield row("WANTED", _unwanted(changes))
    else:
        yield row("WANTED", f"yes, since inventory revision {one['revision']}")
    if one.get("refused"):
        yield row("REFUSED", "the inventory's row has no form in the store; holdfast openstack check names the cause")
    if changes:
        yield row("EDIT", _change(changes[0]))
    if one.get("goes"):
        yield row("MIGRATION", f"{one['goes']['from']} → {one['goes']['to']}")
    for stored in one["store"]:
        if stored["revision"] is not None or stored["wanted"]:
            yield row("STORE", _stored(stored))
    for change in one["waits"]:
        since = short(change["since_s"])
        yield row("PENDING", f"{change['op']} {change['key']} for {since}, {change['why']}")
        is_editable = one.get("editable", True)
        yield from _choices(change, is_editable) if change["gate"] == "witness" else release_rows([change])
    yield from _gates(one)
    for change in changes[1:]:
        yield row("HISTORY", _change(change))
    if changes and one.get("undo", True):
        yield row("UNDO", f"holdfast undo {one['kind']} {one['name']}")


def _unwanted(changes: list[dict[str, Any]]) -> str:
    if not changes:
        return "no, and the inventory has no record of it"
    if changes[0]["did"] == "deleted":
        return f"no, since inventory revision {changes[0]['revision']}"
    return "no, and no recorded change deleted it"


def _choices(change: dict[str, Any], is_editable: bool) -> Iterator[str]:
    """Yield the commands that decide about an object without a witness."""
    yield row("", "To delete it, with all others that are shown: holdfast gate allow syncer/witness --once --reason …")
    if is_editable:
        yield row("", "To keep it, in the inventory: holdfast import")
    yield row("", f"To leave it alone for good: holdfast ignore {change['key']} --reason …")


def _headline(one: dict[str, Any]) -> str:
    name = f"{one['kind']} {one['name']}"
    if one.get("refused"):
        has = any(stored["revision"] is not None for stored in one["store"])
        return (
            f"{name} cannot be expressed; {'its last good object stays in the store' if has else 'it is not stored'}."
        )
    wrong = [stored for stored in one["store"] if not stored["right"]]
    if not wrong:
        return (
            f"{name} is wanted and in the store."
            if one["revision"] is not None
            else f"{name} is not wanted and not in the store."
        )
    if one["revision"] is None and all(stored.get("ignored") for stored in wrong):
        return f"{name} is not wanted; it is in the store, and ignored."
    if one["revision"] is None:
        return f"{name} is not wanted but still in the store."
    missing = any(stored["wanted"] and stored["revision"] is None for stored in wrong)
    return f"{name} is wanted but {'not in the store yet' if missing else 'differs in the store'}."


def _stored(stored: dict[str, Any]) -> str:
    if stored["revision"] is None:
        return f"{stored['path']}: missing"
    unwanted = "ignored (see holdfast ignore --list)" if stored.get("ignored") else "not wanted"
    state = "in sync" if stored["right"] else "differs" if stored["wanted"] else unwanted
    return f"{stored['path']}: revision {stored['revision']:,} (version {stored['version']}), {state}"


def _gates(one: dict[str, Any]) -> Iterator[str]:
    if not one["leads"]:
        yield row("GATES", "unknown: this server does not lead (see holdfast leader)")
    elif not one["gates"]:
        yield row("GATES", f"leader, identity, sync and intent are open, term {one['term']}")
    for gate in one["gates"]:
        yield row("GATES", f"{gate['gate']} is closed: {gate['reason']}")
        yield row("", f"To release: {gate['opens']}")


def _change(change: dict[str, Any]) -> str:
    return f"{change['did']} {change['at'][:19]}Z, revision {change['revision']}, by {change['who']}{_reason(change)}"


def _reason(change: dict[str, Any]) -> str:
    return f": “{change['why']}”" if change["why"] else ""


def change_lines(one: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the edits of the object as lines of `history`, each with its time."""
    return [
        (change["at"], f"{change['at'][5:10]} {change['at'][11:19]}.000Z  {'inventory':<16} {_line(one, change)}")
        for change in one["changes"]
    ]


def _line(one: dict[str, Any], change: dict[str, Any]) -> str:
    edit = f"{change['did']} by {change['who']}, revision {change['revision']}"
    return f"{one['kind']} {one['name']}: {edit}{_reason(change)}"
