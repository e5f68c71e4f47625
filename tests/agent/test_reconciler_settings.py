"""Settings that the agent derives instead of taking them from the file."""

from __future__ import annotations

from holdfast.agent.reconciler import linger
from holdfast.model.base.time import seconds


def test_every_host_asks_for_its_brakes_list_at_a_time_of_its_own_within_a_minute() -> None:
    times = [linger(f"r{row}-{number:02}") for row in range(50) for number in range(100)]
    assert min(times) < seconds(2)
    assert seconds(58) < max(times) < seconds(60)
    assert sum(time < seconds(6) for time in times) < 1_000, "far more than a tenth of them in the first tenth"
    assert linger("r1-01") == linger("r1-01")
