"""Imports into the inventory: many requests in batches, where one that is refused costs the others nothing.

A batch is one edit, so its requests may depend on each other: two endpoints that swap their addresses, a host that goes
with its endpoints. A batch that is refused is split until the refused request is alone. Requests that were refused only
because they came before one that they depend on are tried again, as long as that brings any of them in. An import that
was interrupted can be repeated: what is in already is unchanged.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine, insert, select, text

from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.transaction import EditTimedOut
from holdfast.inventory.sql.engine import (
    DatabaseTimeouts,
    database_url,
    is_postgres,
    open_engine,
    reading,
    snapshot_options,
    writing,
)
from holdfast.inventory.sql.schema import ADDRESSES, METADATA, OBJECTS, REVISIONS

BATCH = 2_000
"""Requests per edit. Larger ones would hold up other edits for longer."""


@dataclass
class Imported:
    """Outcome of an import: the edits that were made, and each refused request with its reason."""

    edits: list[Edit] = field(default_factory=list)
    refused: list[tuple[WantedObject, str]] = field(default_factory=list)


def bring_in(
    editor: Editor,
    requests: Sequence[WantedObject],
    *,
    who: str,
    why: str,
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda _: None,
) -> Imported:
    """Apply as many of the requests as the rules allow; `progress` gets the number of requests decided so far."""
    outcome = Imported()
    pending = list(requests)
    while pending:
        refused: list[tuple[WantedObject, str]] = []
        for start in range(0, len(pending), batch):
            _change(editor, pending[start : start + batch], who, why, outcome.edits, refused)
            progress(len(requests) - len(pending) + start + len(pending[start : start + batch]))
        if len(refused) == len(pending) or not refused:
            outcome.refused = refused
            break
        pending = [request for request, _ in refused]
    return outcome


def _change(
    editor: Editor,
    requests: Sequence[WantedObject],
    who: str,
    why: str,
    edits: list[Edit],
    refused: list[tuple[WantedObject, str]],
) -> None:
    try:
        made = editor.change(requests, who=who, why=why)
    except EditTimedOut:
        raise  # no object of them is at fault
    except EditRefused as error:
        if len(requests) == 1:
            refused.append((requests[0], "; ".join(str(error).splitlines())))
            return
        middle = len(requests) // 2
        _change(editor, requests[:middle], who, why, edits, refused)
        _change(editor, requests[middle:], who, why, edits, refused)
    else:
        edits += [edit for edit in made if edit.did is not ChangeKind.UNCHANGED]


@contextlib.contextmanager
def scratch_copy(engine: Engine) -> Iterator[Engine]:
    """A private copy of the desired state for the length of the block, to find out what an import would do: each
    refusal depends on what was imported before, and a rehearsal on the database itself would hold up other edits."""
    with tempfile.TemporaryDirectory(prefix="holdfast-import-") as folder:
        scratch = open_engine(database_url(f"sqlite:///{folder}/inventory.db"))
        try:
            METADATA.create_all(scratch)
            with reading(engine) as source, writing(scratch) as copy:
                if is_postgres(engine):
                    source.execute(text(snapshot_options(DatabaseTimeouts())))  # writing the copy may take a while
                for table in (OBJECTS, ADDRESSES, REVISIONS):
                    for rows in source.execute(select(table)).mappings().partitions(BATCH):
                        copy.execute(insert(table), [dict(row) for row in rows])
            yield scratch
        finally:
            scratch.dispose()
