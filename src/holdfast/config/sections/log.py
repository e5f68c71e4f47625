"""Log: level, format, and size of the decision log."""

from __future__ import annotations

from typing import Annotated, Literal

from holdfast.config.schema.field import FieldDoc, Section, Size

MIB = 2**20


class LogSettings(Section, frozen=True, kw_only=True):
    """Log and decision log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        FieldDoc(
            "Lowest level that is logged. `info` logs every decision; `debug` adds failed attempts that are retried, "
            "and holds that need no attention; above `info` decisions are only in the decision log.",
            on_reload=True,
        ),
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        FieldDoc(
            "Format of log lines: `console` for people, `json` for programs, `auto` for `console` on a terminal.",
            on_reload=True,
        ),
    ] = "auto"
    decisions_size: Annotated[
        Size,
        FieldDoc(
            "Size of the decision log of each worker, a ring buffer in the state folder: new records overwrite the "
            "oldest ones.",
            small="`holdfast history` and `explain` lose the reason of a delete before an operator asks",
            big="every worker takes that much disk space in the state folder",
            least=1 * MIB,
            most=16_384 * MIB,
        ),
    ] = 64 * MIB
