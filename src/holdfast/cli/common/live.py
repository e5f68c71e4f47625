"""Display on a terminal that is redrawn in place."""

from __future__ import annotations

from typing import Any

from rich.live import Live


def live(**options: Any) -> Live:
    """Return a display that is refreshed only when asked.

    rich must not put its own streams in front of ours: it would write the sequences that move the cursor to the stream
    that escapes control characters, and they would be shown as text.
    """
    return Live(auto_refresh=False, redirect_stdout=False, redirect_stderr=False, **options)
