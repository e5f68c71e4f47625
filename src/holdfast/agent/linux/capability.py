"""The one right that the agent needs: CAP_NET_ADMIN, in its own network namespace."""

from __future__ import annotations

from pathlib import Path

_NET_ADMIN = 12
_STATUS = Path("/proc/self/status")


def missing_capability() -> str | None:
    """None, or one sentence for whoever started us without it."""
    effective = int(_STATUS.read_text().partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    if effective >> _NET_ADMIN & 1:
        return None
    return (
        "the agent may not change this host's routes: start it as root, or give its systemd unit "
        "AmbientCapabilities=CAP_NET_ADMIN"
    )
