"""All sections: complete documentation, valid defaults, and conflicts between settings."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.config import Config
from holdfast.config.loading.resolve import VALUES
from holdfast.config.schema.field import Field
from holdfast.config.sections.paths import PathSettings
from holdfast.config.sections.pulse import PulseSettings
from holdfast.config.sections.store import StoreSettings


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@pytest.mark.parametrize("field", VALUES.values(), ids=list(VALUES))
def test_every_measured_field_has_bounds_and_consequences(field: Field) -> None:
    measured = field.noun in ("duration", "size", "whole number")
    doc = field.doc
    assert doc.what.endswith(".")
    assert measured == (doc.least is not None) == (doc.most is not None) == bool(doc.small) == bool(doc.big)


@pytest.mark.parametrize("field", VALUES.values(), ids=list(VALUES))
def test_every_default_is_inside_its_bounds(field: Field) -> None:
    is_open = field.doc.least is None or (field.optional and field.default is None)
    assert is_open or field.doc.least <= field.default <= field.doc.most


def test_the_defaults_have_no_conflicts() -> None:
    config = Config()
    for section in (config, config.paths, config.log, config.store, config.runtime):
        assert list(section.conflicts()) == []


@pytest.mark.parametrize(
    ("store", "blamed", "part"),
    [
        (StoreSettings(endpoints=()), "endpoints", "is empty"),
        (StoreSettings(endpoints=("http://a:1", "http://a:1")), "endpoints", "twice"),
        (StoreSettings(endpoints=("http://a:1", "https://b:1")), "endpoints", "mixes http and https"),
        (StoreSettings(ca_file="/ca"), "ca_file", "has no effect over http"),
        (StoreSettings(endpoints=("https://a:1",), cert_file="/c"), "cert_file", "needs store.key_file"),
        (StoreSettings(endpoints=("https://a:1",), key_file="/k"), "key_file", "needs store.cert_file"),
        (StoreSettings(password_file="/p"), "password_file", "needs store.user"),
        (StoreSettings(user="u"), "user", "needs store.password_file"),
        (
            StoreSettings(endpoints=("http://10.0.0.1:1",), user="u", password_file="/p"),
            "endpoints",
            "password unencrypted",
        ),
    ],
)
def test_an_unusable_or_unsafe_store_is_refused(store: StoreSettings, blamed: str, part: str) -> None:
    (conflict,) = store.conflicts()
    assert conflict.fields[0] == blamed
    assert part in conflict.sentence


@pytest.mark.parametrize(
    "store",
    [
        StoreSettings(user="u", password_file="/p"),
        StoreSettings(endpoints=("https://10.0.0.1:1",), user="u", password_file="/p"),
        StoreSettings(endpoints=("http://10.0.0.1:1",), user="u", password_file="/p", password_in_clear=True),
        StoreSettings(endpoints=("http://10.0.0.1:1",)),
        StoreSettings(endpoints=("https://a:1",), ca_file="/a", cert_file="/c", key_file="/k"),
    ],
)
def test_a_safe_store_is_accepted(store: StoreSettings) -> None:
    assert list(store.conflicts()) == []


@pytest.mark.parametrize(
    ("pulse", "blamed"),
    [
        (PulseSettings(grace_after=seconds(10)), "grace_after"),
        (PulseSettings(stalled_after=seconds(10)), "stalled_after"),
        (PulseSettings(supervisor_silent_after=seconds(5)), "supervisor_silent_after"),
        (PulseSettings(backoff_first=seconds(31)), "backoff_most"),
        (PulseSettings(crash_loop_window=seconds(149)), "crash_loop_window"),
    ],
)
def test_contradicting_supervision_settings_are_refused(pulse: PulseSettings, blamed: str) -> None:
    assert [conflict.fields[0] for conflict in pulse.conflicts()] == [blamed]


def test_state_and_runtime_need_different_folders() -> None:
    (conflict,) = PathSettings(state="/x/", runtime="/x").conflicts()
    assert conflict.fields == ("runtime", "state")
