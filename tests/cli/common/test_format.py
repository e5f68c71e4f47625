"""Times, counts and the `To release:` lines of the output."""

from __future__ import annotations

import pytest

from holdfast.cli.common.format import clock, count, release_lines, short


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0.0 s"), (0.44, "0.4 s"), (59.94, "59.9 s"), (59.96, "1m00s"), (60, "1m00s"), (3_599.9, "59m59s")],
)
def test_short_times(seconds: float, told: str) -> None:
    assert short(seconds) == told


def test_long_times_and_counts() -> None:
    assert (short(7_500), short(219_600), clock(214.9)) == ("2h05m", "2d13h", "00:03:34")
    assert (count(34_812), count(0), count(None)) == ("34,812", "0", "–")


def test_each_way_to_release_held_changes_is_named_once() -> None:
    held, pending = {"opens": "holdfast gate allow routes/brake"}, {"opens": ""}
    assert list(release_lines([held, held, pending])) == ["To release: holdfast gate allow routes/brake"]
