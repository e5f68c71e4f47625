"""What Holdfast says, how it is written, and how long its decisions are remembered."""

from __future__ import annotations

from typing import Annotated, Literal

from holdfast.config.schema.field import FieldDoc, Section, Size

MIB = 2**20


class LogSettings(Section, frozen=True, kw_only=True):
    """Log lines and the decision log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        FieldDoc(
            "The least important lines that are written. At `info` every decision is one line; `debug` adds each look "
            "at the store and is too much for daily use; above `info` decisions are missing from the log, though never "
            "from the decision log."
        ),
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        FieldDoc("How a line looks: `console` for people, `json` for machines, `auto` chooses console on a terminal."),
    ] = "auto"
    decisions_size: Annotated[
        Size,
        FieldDoc(
            "Size of the decision log of each worker, a ring in the state folder: the oldest records make room for new "
            "ones.",
            small="`holdfast history` and `explain` forget why something was deleted before anybody asks",
            big="every worker takes that much of the disk below the state folder",
            least=1 * MIB,
            most=16_384 * MIB,
        ),
    ] = 64 * MIB
