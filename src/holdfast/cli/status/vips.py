"""VIPs on the status page: the balancers' own answers here, and their reports in the store. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.cli.common.format import counted, parts
from holdfast.store.balancers import BalancerSeen

_DIGEST = 6
"""Characters of a digest that are shown."""
_TABLES = 3


def lines(balancers: Sequence[BalancerSeen], width: int | None = None) -> list[str]:
    """Return the row VIPS: how many there are, how many serve, and on how many balancers the tables are equal."""
    if not balancers:
        return []
    states = {
        name: [one.frontends[name] for one in balancers if name in one.frontends]
        for name in sorted({name for one in balancers for name in one.frontends})
    }
    kinds = Counter(map(_kind, states.values()))
    shown = [f"{kind} {kinds[kind]:,}" for kind in ("serving", "degraded", "dark")]
    unknown = f"unknown {kinds['unknown']:,}" if kinds["unknown"] else ""
    return ["", *parts(f"{'VIPS':<10}{len(states):>7,}   ", *shown, unknown, *_tables(balancers), width=width)]


def _kind(states: Sequence[str]) -> str:
    """Judge one VIP: serving on all balancers that have it, on some (degraded), on none (dark), or not known."""
    up = sum(state == "up" for state in states)
    if up == len(states):
        return "serving"
    if up:
        return "degraded"
    return "dark" if "down" in states else "unknown"


def _tables(balancers: Sequence[BalancerSeen]) -> Iterator[str]:
    tables = Counter(one.table for one in balancers if one.table)
    if len(tables) == 1:
        yield f"table {next(iter(tables))[:_DIGEST]} on {counted(tables.total(), 'balancer')}"
    elif tables:
        shares = [f"{table[:_DIGEST]} on {number:,}" for table, number in tables.most_common(_TABLES)]
        yield f"tables differ: {', '.join(shares)}{', …' if len(tables) > _TABLES else ''}"
