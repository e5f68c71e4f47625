"""Contact of a client with the store: its last answer, and the reasons for which watches began again. For metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from holdfast.model.base.time import Instant


class WatchRestart(Enum):
    """Reason for which a watch began again."""

    INTERRUPTED = "interrupted"
    """Its stream ended, and it continued where it was."""
    COMPACTED = "compacted"
    """The revision from which it would have continued was compacted: everything was listed again."""
    REWOUND = "rewound"
    """The store was wiped or restored: everything was listed again."""


@dataclass(slots=True)
class StoreContact:
    last: Instant
    """Last answer or event of the store; before the first, the start of the client."""
    restarts: Counter[WatchRestart] = field(default_factory=Counter)
