"""A problem as `holdfast status` shows it: whose, in one sentence, with the next command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be. `needs_you`: it will not mend itself."""

    who: str
    sentence: str
    look: str = ""
    open: str = ""
    needs_you: bool = True
