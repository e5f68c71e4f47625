"""Scalars: accepted texts of each kind, and the error for all others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.schema import scalars
from holdfast.config.schema.scalars import Unfit


def refusal(read: Callable[[str], object], written: str) -> str:
    with pytest.raises(Unfit) as caught:
        read(written)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("5s", 5), ("1m30s", 90), ("250ms", 0.25), ("2h", 7200), ("1d", 86400), ("0.5s", 0.5), ("1.5m", 90), ("0s", 0)],
)
def test_durations_are_written_with_units(written: str, seconds: float) -> None:
    assert scalars.duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("5", "is '5', which is not a duration: a number needs a unit, such as 5s (d, h, m, s or ms)"),
        ("1:30", "is '1:30', which is not a duration: write it with units, such as 250ms, 5s, 1m30s, 2h or 1d"),
        ("30s1m", "is '30s1m': write each unit once, from the biggest to the smallest, such as 1m30s"),
        ("1s1s", "is '1s1s': write each unit once, from the biggest to the smallest, such as 1m30s"),
        ("0.0001s", "is '0.0001s', which is finer than a millisecond"),
        ("99999999d", "is '99999999d', which is longer than ten years"),
        ("-5s", "is '-5s', which is not a duration: write it with units, such as 250ms, 5s, 1m30s, 2h or 1d"),
        ("٥s", "is '٥s', which is not a duration: write it with units, such as 250ms, 5s, 1m30s, 2h or 1d"),
    ],
)
def test_a_text_that_is_no_duration_is_refused_with_advice(written: str, sentence: str) -> None:
    assert refusal(scalars.duration, written) == sentence


@settings(deadline=None)
@given(st.integers(0, 3650 * 86_400_000))
def test_a_duration_survives_being_written_and_read(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert scalars.duration(scalars.show_duration(value)) == value


@pytest.mark.parametrize(("written", "size"), [("64MiB", 64 * 2**20), ("1B", 1), ("2GiB", 2**31), ("0B", 0)])
def test_sizes_are_written_with_binary_units(written: str, size: int) -> None:
    assert scalars.size(written) == size


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("64MB", "units are powers of 1,024, write 64MiB"),
        ("64k", "units are powers of 1,024, write 64KiB"),
        ("64", "a number needs a unit, such as 64MiB (B, KiB, MiB, GiB or TiB)"),
        ("big", "write it with a unit, such as 64MiB"),
    ],
)
def test_a_text_that_is_no_size_is_refused_with_advice(written: str, advice: str) -> None:
    assert refusal(scalars.size, written) == f"is '{written}', which is not a size: {advice}"


@settings(deadline=None)
@given(st.integers(0, 2**49))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert scalars.size(scalars.show_size(size)) == size


@pytest.mark.parametrize("written", ["yes", "on", "no", "True", "1", ""])
def test_only_true_and_false_are_true_or_false(written: str) -> None:
    assert refusal(scalars.boolean, written) == f"is '{written}': write true or false"


@pytest.mark.parametrize("written", ["010", "0o12", "0x1f", "1_000", "1.0", "1e3", "9" * 30, ""])
def test_numbers_are_plain_decimal(written: str) -> None:
    assert "which is not a whole number" in refusal(scalars.integer, written)


def test_a_choice_suggests_the_nearest_word() -> None:
    sentence = refusal(lambda word: scalars.choice(word, ("debug", "info")), "inof")
    assert sentence == "is 'inof': write debug or info; did you mean info?"


@pytest.mark.parametrize("written", ["two\nlines", "\x1b[31mred", "\udc80"])
def test_unprintable_text_is_refused_and_escaped(written: str) -> None:
    assert refusal(scalars.text, written).isprintable()


@pytest.mark.parametrize("written", ["relative/path", "~/x", "/a/../b", ""])
def test_paths_are_absolute_and_without_dot_dot(written: str) -> None:
    assert refusal(scalars.path, written).startswith("is '")


def test_a_file_may_be_a_systemd_credential() -> None:
    assert scalars.file("credential:etcd-password") == "credential:etcd-password"


@pytest.mark.parametrize("name", ["", "..", "a/b", "../shadow"])
def test_a_credential_cannot_point_outside_its_folder(name: str) -> None:
    assert "the name of a systemd credential" in refusal(scalars.file, f"credential:{name}")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:2379", "https://etcd-1.example.net:2379", "https://[2001:db8::1]:2379"]
)
def test_endpoints_are_urls_with_a_port(url: str) -> None:
    assert scalars.endpoint(url) == url


def test_a_slash_at_the_end_of_an_endpoint_is_dropped() -> None:
    assert scalars.endpoint("http://etcd-1:2379/") == "http://etcd-1:2379"


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("etcd-1:2379", "write http://HOST:PORT"),
        ("ftp://etcd-1:2379", "write http://HOST:PORT"),
        ("http://etcd-1", "has no port: etcd's is usually http://etcd-1:2379"),
        ("http://etcd-1:0", "has no port"),
        ("http://etcd-1:99999", "is not a URL"),
        ("http://:2379", "no host can be recognised"),
        ("http://a b:2379", "no host can be recognised"),
        ("http://[::1:2379", "is not a URL"),
        ("http://etcd-1:2379/v3", "nothing may follow the port"),
    ],
)
def test_an_invalid_endpoint_is_refused_with_a_sentence(url: str, part: str) -> None:
    assert part in refusal(scalars.endpoint, url)


def test_a_password_in_an_endpoint_is_refused_and_not_repeated() -> None:
    assert "hunter2" not in refusal(scalars.endpoint, "http://root:hunter2@etcd-1:2379")


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.9.9.9:1", True),
        ("http://[::1]:1", True),
        ("http://localhost:1", True),
        ("http://10.0.0.1:1", False),
    ],
)
def test_loopback_is_recognised(url: str, loopback: bool) -> None:
    assert scalars.is_loopback(url) is loopback


def outcome(read: Callable[[str], object], written: str) -> str:
    try:
        return repr(read(written))
    except Unfit as unfit:
        return str(unfit)


@settings(deadline=None)
@given(st.text())
def test_readers_raise_only_unfit(written: str) -> None:
    for read in (
        scalars.duration,
        scalars.size,
        scalars.boolean,
        scalars.integer,
        scalars.name,
        scalars.path,
        scalars.file,
        scalars.endpoint,
    ):
        assert outcome(read, written).isprintable()
