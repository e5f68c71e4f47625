"""Ages of problems: since when the API has seen each one. Pure.

The figures in a sentence change all the time; a problem is the same one while its subject and its words are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

_FIGURES = re.compile(r"\d[\d:.,]*")


class ProblemAges:
    def __init__(self) -> None:
        self._since: dict[tuple[str, str], datetime] = {}

    def dated(self, problems: Sequence[Mapping[str, Any]], now: datetime) -> list[dict[str, Any]]:
        """Return the problems, each with `since`; forgets those that are over."""
        keys = [(str(one["subject"]), _FIGURES.sub("#", str(one["sentence"]))) for one in problems]
        self._since = {key: self._since.get(key, now) for key in keys}
        return [
            {**one, "since": f"{self._since[key]:%Y-%m-%dT%H:%M:%SZ}"} for one, key in zip(problems, keys, strict=True)
        ]
