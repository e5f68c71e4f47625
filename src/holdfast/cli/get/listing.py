"""Table of anything that `get` shows: columns, rows and documents. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from holdfast.cli.common.table import table


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of a kind. The first column is the name; `documents` are what `-o json` and `-o yaml` print."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    documents: Sequence[Mapping[str, Any]]
    none: str
    """Sentence for a table without rows."""

    def of(self, name: str | None) -> Listing:
        """Only the rows of that name, which needs no daemon in front of it; all without one."""
        if name is None:
            return self
        picked = [number for number, row in enumerate(self.rows) if row[0] == name or row[0].endswith(f"/{name}")]
        if not picked:
            raise click.ClickException(f"there is no {name} here: the command without it lists what there is")
        return Listing(
            self.columns, [self.rows[number] for number in picked], [self.documents[number] for number in picked], ""
        )

    def render(self, output: str) -> str:
        if output == "name":
            return "\n".join(row[0] for row in self.rows)
        return "\n".join(table([self.columns, *self.rows]))
