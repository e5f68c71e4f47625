"""Unsafe timings are refused at start, with the reason."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from holdfast.config.sections.server import ServerSettings


def refusals(**seconds: float) -> list[str]:
    given = {name: timedelta(seconds=value) for name, value in seconds.items()}
    server = msgspec.structs.replace(ServerSettings(), **given)
    return [conflict.sentence for conflict in server.conflicts()]


def test_the_defaults_are_safe() -> None:
    assert refusals() == []


def test_timings_just_inside_the_bounds_are_accepted() -> None:
    assert refusals(ttl=11, renew_deadline=10, renew_every=8.3, rpc_timeout=5) == []


@pytest.mark.parametrize(
    ("timings", "sentence"),
    [
        ({"ttl": 10.0}, "continues after its lease has expired"),
        ({"renew_every": 9.0}, "steps down before its second attempt"),
        ({"rpc_timeout": 5.1}, "one hanging call leaves no time for another"),
        ({"ttl": 15.5}, "etcd would round it"),
    ],
)
def test_an_unsafe_timing_is_refused_with_the_reason(timings: dict[str, float], sentence: str) -> None:
    (said,) = refusals(**timings)
    assert sentence in said
