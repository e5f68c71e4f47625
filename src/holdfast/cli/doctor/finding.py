"""One finding of `holdfast doctor`: a line that is good, worth a note, or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Mark(Enum):
    GOOD = "ok  "
    NOTE = "note"
    WRONG = "BAD "


@dataclass(frozen=True, slots=True)
class Finding:
    mark: Mark
    what: str
    sentence: str
