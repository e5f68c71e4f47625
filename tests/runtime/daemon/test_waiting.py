"""A wait is logged once per state, and says since when."""

from __future__ import annotations

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from holdfast.runtime.daemon.waiting import Waiting
from tests.runtime.harness import HandClock, MemoryPlace, numbered


def test_a_wait_is_news_once_per_state_and_keeps_its_beginning() -> None:
    clock = HandClock()
    waiting = Waiting(clock)
    assert waiting.fields() == {}
    assert waiting.is_news("store")
    clock.move(30)
    assert not waiting.is_news("store")
    clock.move(30)
    assert waiting.is_news("database")
    assert waiting.end() == {"since": "2026-01-01T00:00:00+00:00", "waited_s": 60.0}
    assert waiting.end() == {}
    assert waiting.is_news("database")


def test_the_loop_says_what_it_waits_for_since_when_and_for_how_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = MemoryPlace(tmp_path, numbered(5), {})
        site.source.away = "connection refused"
        await site.turn(after=10, times=7)
        site.source.away, site.target.away = None, "netlink"
        await site.turn(after=10, times=2)
        site.target.away = None
        await site.turn(after=10)

    with capture_logs() as logs:
        asyncio.run(scenario())
    lines = [line for line in logs if "dependency" in line["event"]]
    assert [(line["log_level"], line.get("what"), line["waited_s"]) for line in lines] == [
        ("warning", "database", 0.0),
        ("warning", "dataplane", 70.0),
        ("info", None, 90.0),
    ]
    assert {line["since"] for line in lines} == {"2026-01-01T00:00:10+00:00"}
