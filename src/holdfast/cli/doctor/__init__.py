"""`holdfast doctor`: checks what Holdfast depends on. `command` is the entry and checks the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    GOOD = "ok  "
    NOTE = "note"
    WRONG = "BAD "


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the output: what was checked, and the result with what to do."""

    severity: Severity
    subject: str
    sentence: str
