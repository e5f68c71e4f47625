"""`holdfast explain` and `history` of an object of the inventory: who wanted it, does the store have it, what waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import tell, workers
from holdfast.cli.common.format import short


def about(runtime: Path, kind: str, name: str) -> dict[str, Any]:
    """What the syncers here say; of several the one that leads knows most. Ends the command when none knows it."""
    known = [one for one in workers(runtime) if one.rpartition("/")[2] == "syncer"]
    if not known:
        raise click.ClickException("no server with an inventory runs here: ask on one that holdfast leader names")
    refusals: list[click.ClickException] = []
    answers: list[dict[str, Any]] = []
    for syncer in known:
        try:
            answers.append(tell(runtime, syncer, "explain", kind=kind, name=name))
        except click.ClickException as refused:
            refusals.append(refused)
    if not answers:
        raise refusals[0]
    return max(answers, key=lambda one: bool(one["leads"]))


def beside(runtime: Path, kind: str, name: str) -> dict[str, Any] | None:
    """The same beside what others have to say of it; None where no server of this machine knows it."""
    try:
        return about(runtime, kind, name)
    except click.ClickException:
        return None


def told(one: dict[str, Any]) -> Iterator[str]:
    yield _headline(one)
    yield ""
    changes = one["changes"]
    if one["revision"] is None:
        yield _row("WANTED", "by nobody" + (f" since revision {changes[0]['revision']}" if changes else ""))
    else:
        yield _row("WANTED", f"by the inventory, since its revision {one['revision']}")
    if changes:
        yield _row("BECAUSE", _change(changes[0]))
    if one.get("goes"):
        yield _row("MIGRATES", f"{one['goes']['from']} → {one['goes']['to']}")
    for held in one["store"]:
        if held["revision"] is not None or held["wanted"]:
            yield _row("STORE", _held(held))
    for waiting in one["waits"]:
        yield _row("WAITS", f"{waiting['op']} {waiting['key']} for {short(waiting['since_s'])}, {waiting['why']}")
        yield from ([_row("", f"opens by: {waiting['opens']}")] if waiting["opens"] else [])
    yield from _gates(one)
    for change in changes[1:]:
        yield _row("BEFORE", _change(change))
    if changes and one.get("undo", True):
        yield _row("UNDO", f"holdfast undo {one['kind']} {one['name']}")


def _headline(one: dict[str, Any]) -> str:
    what = f"{one['kind']} {one['name']}"
    wrong = [held for held in one["store"] if not held["right"]]
    if not wrong:
        return f"{what} is wanted, and the store has it." if one["revision"] else f"{what} is not wanted, and gone."
    if one["revision"] is None:
        return f"{what} is not wanted, and the store still has it."
    missing = any(held["wanted"] and held["revision"] is None for held in wrong)
    return f"{what} is wanted, and the store does not have it{'' if missing else ' like that'} yet."


def _held(held: dict[str, Any]) -> str:
    if held["revision"] is None:
        return f"{held['path']}: not there"
    right = "as wanted" if held["right"] else "not as wanted" if held["wanted"] else "not wanted"
    return f"{held['path']}: written at revision {held['revision']:,} (version {held['version']}), {right}"


def _gates(one: dict[str, Any]) -> Iterator[str]:
    if not one["leads"]:
        yield _row("GATES", "not known here: this server does not lead (holdfast leader tells who does)")
    elif not one["gates"]:
        yield _row("GATES", f"leader, identity, sync and intent are open, term {one['term']}")
    for gate in one["gates"]:
        yield _row("GATES", f"{gate['gate']} is closed: {gate['reason']}")
        yield _row("", f"opens by: {gate['opens']}")


def _change(change: dict[str, Any]) -> str:
    why = f": “{change['why']}”" if change["why"] else ""
    return f"{change['did']} {change['at'][:19]}Z, revision {change['revision']}, by {change['who']}{why}"


def _row(head: str, text: str) -> str:
    return f"{head:<10}{text}"


def changes(one: dict[str, Any]) -> list[tuple[str, str]]:
    """The changes of the inventory as lines of a history, each with its time."""
    return [
        (change["at"], f"{change['at'][5:10]} {change['at'][11:19]}.000Z  {'inventory':<12} {_line(one, change)}")
        for change in one["changes"]
    ]


def _line(one: dict[str, Any], change: dict[str, Any]) -> str:
    why = f": “{change['why']}”" if change["why"] else ""
    return f"{one['kind']} {one['name']}: {change['did']} by {change['who']}, revision {change['revision']}{why}"
