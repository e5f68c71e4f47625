"""Precedence and origins of values, and all errors at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config import Config, ConfigFile, ConfigRejected, FlagValue, Layer, Loaded, Origin, resolve
from holdfast.config.loading.resolve import RESERVED, VALUES, VARIABLES


def good(file: str | None = None, environ: Mapping[str, str] | None = None, *flags: FlagValue) -> Loaded:
    result = resolve(ConfigFile("f.yaml", file.encode()) if file else None, environ or {}, flags)
    assert isinstance(result, Loaded), str(result)
    return result


def wrong(file: str | None = None, environ: Mapping[str, str] | None = None, *flags: FlagValue) -> list[str]:
    result = resolve(ConfigFile("f.yaml", file.encode()) if file else None, environ or {}, flags)
    assert isinstance(result, ConfigRejected)
    return str(result).splitlines()


FILE = "log:\n  level: warning\n"
ENVIRONMENT = {"HOLDFAST_LOG_LEVEL": "error"}
FLAG = FlagValue("--log-level", "log.level", "debug")


def test_without_any_source_every_value_is_its_default() -> None:
    loaded = good()
    assert set(loaded.origins) == set(VALUES)
    assert {origin.layer for origin in loaded.origins.values()} == {Layer.DEFAULT}


def test_the_file_overrides_the_default() -> None:
    loaded = good(FILE)
    assert loaded.config.log.level == "warning"
    assert loaded.origins["log.level"] == Origin(Layer.FILE, "f.yaml", 2, 3)


def test_the_environment_overrides_the_file() -> None:
    loaded = good(FILE, ENVIRONMENT)
    assert loaded.config.log.level == "error"
    assert str(loaded.origins["log.level"]) == "environment HOLDFAST_LOG_LEVEL"


def test_a_flag_overrides_the_environment() -> None:
    loaded = good(FILE, ENVIRONMENT, FLAG)
    assert loaded.config.log.level == "debug"
    assert str(loaded.origins["log.level"]) == "flag --log-level"


def test_an_overridden_value_is_still_checked() -> None:
    assert wrong("log:\n  level: loud\n", ENVIRONMENT, FLAG) == [
        "f.yaml:2:10: log.level: is 'loud': write debug, info, warning or error"
    ]


EVERYTHING_WRONG = """\
f.yaml:3:35: store.endpoints[1]: is 'etcd-2': write http://HOST:PORT or https://HOST:PORT
f.yaml:4:3: store.endpoint: is not a known field; did you mean endpoints?
f.yaml:5:3: store.password: would be a secret in the configuration: write it into a file of its own, and name that in store.password_file
f.yaml:6:18: store.call_deadline: is '5', which is not a duration: a number needs a unit, such as 5s (d, h, m, s or ms)
f.yaml:7:22: store.password_in_clear: is 'yes': write true or false
f.yaml:8:1: sotre: is not a known section; did you mean store?
f.yaml:11:20: runtime.heartbeat_after: is 1s, less than 3s: a busy worker is killed in the middle of its work
f.yaml:12:24: runtime.crash_loop_restarts: is '0x5', which is not a whole number: write it in decimal digits, such as 5
f.yaml:13:3: runtime.backoff_first: does not fit runtime.backoff_most (30s), which must not be shorter than runtime.backoff_first (50s)
f.yaml:15:10: log.level: is 'inf': write debug, info, warning or error; did you mean info?
f.yaml:16:19: log.decisions_size: is '64MB', which is not a size: units are powers of 1,024, write 64MiB
f.yaml:17:3: log.level: is given twice, first on line 15: remove one
f.yaml:18:1: level: is not a known section; did you mean log.level?
environment HOLDFAST_LOG_FORMAT: log.format: is 'xml': write auto, console or json
flag --deadline: store.call_deadline: is 2h, more than 1m: a hanging member delays every call for that long, and leases expire meanwhile
flag --set log.colour: log.colour: is not a known field
"""  # noqa: E501


def test_all_errors_come_at_once_in_the_order_of_the_file() -> None:
    file = """\
# a file by somebody in a hurry
store:
  endpoints: [http://etcd-1:2379, etcd-2]
  endpoint: http://etcd-3:2379
  password: hunter2
  call_deadline: 5
  password_in_clear: yes
sotre:
  region: x
runtime:
  heartbeat_after: 1s
  crash_loop_restarts: 0x5
  backoff_first: 50s
log:
  level: inf
  decisions_size: 64MB
  level: info
level: debug
"""
    environ = {"HOLDFAST_LOG_FORMAT": "xml", "PATH": "/bin"}
    flags = (FlagValue("--set log.colour", "log.colour", "1"), FlagValue("--deadline", "store.call_deadline", "2h"))
    assert wrong(file, environ, *flags) == EVERYTHING_WRONG.splitlines()


def test_an_unknown_variable_is_a_warning_because_kubernetes_sets_some_for_a_service_of_our_name() -> None:
    loaded = resolve(None, {"HOLDFAST_STORE_ENPOINTS": "x", "HOLDFAST_PORT_2379_TCP": "tcp://10.0.0.1:2379"})
    assert isinstance(loaded, Loaded)
    assert [str(one) for one in loaded.warnings] == [
        "environment HOLDFAST_PORT_2379_TCP: is not known, and has no effect",
        "environment HOLDFAST_STORE_ENPOINTS: is not known, and has no effect; did you mean HOLDFAST_STORE_ENDPOINTS?",
    ]


def test_a_secret_in_the_environment_is_refused() -> None:
    loaded = resolve(None, {"HOLDFAST_STORE_PASSWORD": "hunter2"})
    assert isinstance(loaded, ConfigRejected)
    assert "hunter2" not in str(loaded)


def test_no_for_a_text_is_the_word_no() -> None:
    assert good("store:\n  region: no\n").config.store.region == "no"


@pytest.mark.parametrize("written", ["0o12", "2026-01-01", "1e3", "true", "12345"])
def test_a_text_is_never_read_as_another_type(written: str) -> None:
    assert good(f"store:\n  region: {written}\n").config.store.region == written


def test_null_is_none_in_an_optional_field() -> None:
    loaded = good("store:\n  region: null\n")
    assert loaded.config.store.region is None
    assert loaded.origins["store.region"].layer is Layer.FILE


def test_null_in_quotes_is_the_word_null() -> None:
    assert good('store:\n  region: "null"\n').config.store.region == "null"


def test_null_is_refused_where_a_value_is_needed() -> None:
    assert wrong("log:\n  level: null\n") == [
        "f.yaml:2:10: log.level: has no value: give it one, or remove it for the default (info)"
    ]


def test_a_key_without_a_value_is_refused() -> None:
    assert wrong("log:\n  level:\n") == [
        "f.yaml:2:9: log.level: has no value: give it one, or remove it for the default (info)"
    ]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("level: [info]", "log.level: is a list: write one `debug` or `info` or `warning` or `error`"),
        ("level: {info: 1}", "log.level: is a section: write one `debug` or `info` or `warning` or `error`"),
        ('level: ""', "log.level: has no value: give it one, or remove it for the default (info)"),
    ],
)
def test_a_value_of_the_wrong_form_is_refused(field: str, said: str) -> None:
    assert wrong(f"log:\n  {field}\n") == [f"f.yaml:2:10: {said}"]


def test_a_list_is_not_a_single_value() -> None:
    assert wrong("store:\n  endpoints: http://a:1\n") == [
        "f.yaml:2:14: store.endpoints: is not a list: write [a, b], or each item below it after a dash"
    ]


@pytest.mark.parametrize("written", ["http://a:1,http://b:1", "http://a:1, http://b:1", '["http://a:1", "http://b:1"]'])
def test_a_list_in_the_environment_has_commas_or_brackets(written: str) -> None:
    assert good(None, {"HOLDFAST_STORE_ENDPOINTS": written}).config.store.endpoints == ("http://a:1", "http://b:1")


def test_each_wrong_item_of_a_list_in_the_environment_is_named() -> None:
    said = wrong(None, {"HOLDFAST_STORE_ENDPOINTS": "a,http://b:1,c"})
    place = "environment HOLDFAST_STORE_ENDPOINTS: store.endpoints"
    assert [line.split(": is ")[0] for line in said] == [f"{place}[0]", f"{place}[2]"]


def test_a_broken_list_in_the_environment_names_the_variable() -> None:
    (said,) = wrong(None, {"HOLDFAST_STORE_ENDPOINTS": "[http://a:1"})
    assert said.startswith("environment HOLDFAST_STORE_ENDPOINTS: store.endpoints: is not YAML: ")


def test_an_empty_variable_is_refused() -> None:
    (said,) = wrong(None, {"HOLDFAST_STORE_REGION": ""})
    assert said.startswith("environment HOLDFAST_STORE_REGION: store.region: has no value: give it one, or null for")


def test_variables_of_the_command_line_are_not_settings() -> None:
    assert good(None, dict.fromkeys(RESERVED, "x")).config == Config()


def test_a_secret_in_the_environment_is_refused_and_not_repeated() -> None:
    (said,) = wrong(None, {"HOLDFAST_STORE_PASSWORD": "hunter2"})
    assert "name that in store.password_file" in said
    assert "hunter2" not in said


def test_a_secret_in_a_flag_is_refused_and_not_repeated() -> None:
    (said,) = wrong(None, None, FlagValue("--password", "store.password", "hunter2"))
    assert "name that in store.password_file" in said
    assert "hunter2" not in said


def test_a_key_that_looks_like_a_secret_is_refused_as_one() -> None:
    assert wrong("log:\n  api_token: hunter2\n") == [
        (
            "f.yaml:2:3: log.api_token: looks like a secret, and those are never written into the configuration: use a "
            "…_file field"
        )
    ]


def test_a_misnamed_file_field_is_suggested() -> None:
    assert wrong("store:\n  ca: /etc/ca.pem\n") == [
        "f.yaml:2:3: store.ca: is not a known field; did you mean store.ca_file?"
    ]


def test_a_dotted_key_is_refused_with_the_nested_form() -> None:
    assert wrong("store.region: ams\n") == [
        "f.yaml:1:1: store.region: is written with a dot: write region below store:, indented"
    ]


def test_a_conflict_with_a_default_is_reported_at_the_value_that_was_set() -> None:
    assert wrong("runtime:\n  heartbeat_after: 4s\n") == [
        (
            "f.yaml:2:3: runtime.heartbeat_after: does not fit runtime.grace_after (5s), which must be shorter than "
            "runtime.heartbeat_after (4s): a pause of the machine between the two would restart every worker"
        )
    ]


def test_a_conflict_made_by_the_environment_names_the_variable() -> None:
    (said,) = wrong(None, {"HOLDFAST_RUNTIME_GRACE_AFTER": "15s"})
    assert said.startswith("environment HOLDFAST_RUNTIME_GRACE_AFTER: runtime.grace_after: must be shorter than ")


def test_an_unreadable_field_causes_no_conflicts() -> None:
    said = wrong("runtime:\n  grace_after: soon\n  heartbeat_after: 4s\n")
    assert [line.split(": ")[1] for line in said] == ["runtime.grace_after"]


def test_every_field_has_a_variable_of_its_own() -> None:
    assert len(VARIABLES) == len(VALUES)
    assert set(VARIABLES).isdisjoint(RESERVED)


def test_durations_are_timedeltas() -> None:
    assert good("runtime:\n  stalled_after: 1m30s\n").config.runtime.stalled_after == timedelta(seconds=90)


NAMES = st.sampled_from([*VARIABLES, "HOLDFAST_X"]) | st.text(max_size=8).map("HOLDFAST_".__add__)


@settings(deadline=None)
@given(
    st.dictionaries(NAMES, st.text(), max_size=4),
    st.lists(st.builds(FlagValue, st.text(), st.sampled_from(list(VALUES)) | st.text(), st.text()), max_size=3),
)
def test_any_environment_and_flags_give_a_configuration_or_problems(
    environ: dict[str, str], flags: list[FlagValue]
) -> None:
    result = resolve(None, environ, flags)
    assert not isinstance(result, ConfigRejected) or all(str(problem).isprintable() for problem in result.problems)
