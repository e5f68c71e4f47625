"""One finding of `holdfast doctor`: a line that is good, worth a note, or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    GOOD = "ok  "
    NOTE = "note"
    WRONG = "BAD "


@dataclass(frozen=True, slots=True)
class Finding:
    mark: Severity
    what: str
    sentence: str
