"""Counters of VPP, from its statistics segment.

The lb plugin counts per VIP, by a number that no message gives: only the sums over all VIPs can be told. The route to
a VIP's address counts the packets to it, for all its ports together. Nothing is counted per server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vpp_papi.vpp_stats import VPPStats

from holdfast.balancer.dataplane.api import Counters
from holdfast.reconcile import Away

TOTALS: Mapping[str, str] = {
    "packet from existing sessions": "established",
    "first session packet": "new",
    "untracked packet": "untracked",
    "no server configured": "no_server",
}
"""Our name for each counter of the plugin."""
_TO_ROUTES = "/net/route/to"


def read(path: str, routes: Mapping[str, int]) -> tuple[dict[str, int], dict[str, Counters]]:
    """Return the sums of the plugin's counters, and the packets by address; `routes` has the number of each address's
    route. Each call opens the segment anew: a restarted VPP has another one. Raises `Away`."""
    try:
        with _opened(path) as stats:
            totals = {name: sum(sum(thread) for thread in stats[counter]) for counter, name in TOTALS.items()}
            counted: Any = stats[_TO_ROUTES]
            passed = {
                address: Counters(int(counted[:, index].sum_packets()), int(counted[:, index].sum_octets()))
                for address, index in routes.items()
            }
    except (OSError, KeyError, IndexError, ValueError) as error:
        raise Away("VPP", f"cannot read its statistics at {path}: {error}") from error
    return totals, passed


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    if not Path(path).is_socket():
        raise Away("VPP", f"its statistics socket {path} is not there: is statseg enabled in VPP's configuration?")
    stats = VPPStats(socketname=path)
    try:
        stats.connect()
    except Exception as error:  # it raises no narrower one for a segment of another version
        raise Away("VPP", f"cannot open its statistics at {path}: {error}") from error
    try:
        yield stats
    finally:
        stats.disconnect()
