"""`holdfast probe`: statistics of results, and parsing of URLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.probing.external import WINDOW, Observation, Url
from holdfast.balancer.probing.messages import ProbeCode, ProbeResult
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, Instant


def passed(milliseconds: int, by: str = "") -> ProbeResult:
    return ProbeResult("vip", True, ProbeCode.L7OK, Duration(milliseconds=milliseconds), Instant(1), answered_by=by)


def failed(code: ProbeCode, *, late: bool = False) -> ProbeResult:
    return ProbeResult("vip", False, code, Duration(0), Instant(1), late, "as expected")


def observed(*results: ProbeResult) -> Observation:
    seen = Observation("vip")
    for result in results:
        seen.note(result)
    return seen


def test_latencies_are_those_of_the_last_hundred_answers() -> None:
    seen = observed(passed(9_999), *[passed(number) for number in range(WINDOW)])
    assert seen.latencies() == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 99.0}


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=300))
def test_quantiles_are_in_order_and_of_the_answers(latencies: list[int]) -> None:
    shown = list(observed(*map(passed, latencies)).latencies().values())
    assert shown == sorted(shown)
    assert shown[-1] == max(latencies[-WINDOW:])


def test_without_an_answer_there_is_no_latency() -> None:
    assert observed(failed(ProbeCode.L4TOUT)).latencies() == {}


def test_errors_are_counted_by_kind_and_a_late_one_proves_nothing() -> None:
    seen = observed(
        passed(1),
        failed(ProbeCode.L4CON),
        failed(ProbeCode.L4CON),
        failed(ProbeCode.L7STS),
        failed(ProbeCode.L4TOUT, late=True),
    )
    assert seen.errors == {"L4CON": 2, "L7STS": 1}
    assert (seen.probes, seen.passed, seen.failed, seen.late) == (5, 1, 3, 1)
    assert seen.success == 0.25
    assert seen.last_error == "L7STS as expected"


def test_answers_are_counted_by_backend() -> None:
    assert observed(passed(1, "a"), passed(1, "b"), passed(1, "a"), passed(1)).answered_by == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("text", "host", "port", "asked", "path"),
    [
        ("http://www.example.org", "www.example.org", 80, "www.example.org", "/"),
        ("https://www.example.org/a?b=c", "www.example.org", 443, "www.example.org", "/a?b=c"),
        ("http://user@www.example.org:8080/x", "www.example.org", 8080, "www.example.org:8080", "/x"),
        ("https://[2001:db8::1]:8443/", "2001:db8::1", 8443, "[2001:db8::1]:8443", "/"),
        ("tcp://192.0.2.1:53", "192.0.2.1", 53, "192.0.2.1:53", "/"),
        ("icmp://192.0.2.1", "192.0.2.1", 0, "192.0.2.1", "/"),
    ],
)
def test_a_url_says_what_to_probe(text: str, host: str, port: int, asked: str, path: str) -> None:
    url = Url.parse(text, HealthCheck(type="tcp"))
    assert (url.host, url.port, url.check.host, url.check.path) == (host, port, asked, path)
    assert url.check.type == text.partition(":")[0]


def test_a_host_of_many_addresses_is_many_targets() -> None:
    url = Url.parse("tcp://www.example.org:80", HealthCheck(type="tcp"))
    assert url.at("192.0.2.1", only=True).id == "tcp://www.example.org:80"
    assert url.at("192.0.2.1", only=False).id == "tcp://www.example.org:80 [192.0.2.1]"
