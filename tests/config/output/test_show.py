"""Output of the configuration: dump for workers, `config show`, and the reference page."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config import Config, ConfigFile, Loaded, dump, resolve, restore
from holdfast.config.loading.resolve import SETTINGS, VALUES, variable
from holdfast.config.output.reference import reference
from holdfast.config.output.show import as_json, as_table, as_yaml
from holdfast.config.sections.log import LogSettings
from holdfast.config.sections.paths import PathSettings
from holdfast.config.sections.pulse import PulseSettings
from holdfast.config.sections.store import StoreSettings

WORDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
HOSTS = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)
PATHS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=20).map(
    lambda text: "/state/" + text.replace("/", "_").replace("..", "_")
)
CONFIGS = st.builds(
    Config,
    paths=st.builds(PathSettings, state=PATHS),
    log=st.builds(LogSettings, level=st.sampled_from(["debug", "info"]), decisions_size=st.integers(2**20, 2**30)),
    store=st.builds(
        StoreSettings,
        endpoints=st.lists(HOSTS.map("https://{}:2379".format), min_size=1, max_size=3, unique=True).map(tuple),
        region=st.none() | WORDS | st.sampled_from(["null", "no", "1e3"]),
        ca_file=st.none() | PATHS,
    ),
    runtime=st.builds(
        PulseSettings,
        term_grace=st.integers(100, 300_000).map(lambda ms: timedelta(milliseconds=ms)),
        crash_loop_restarts=st.integers(2, 10),
    ),
)


def loaded(file: str = "log:\n  level: debug\n") -> Loaded:
    result = resolve(ConfigFile("f.yaml", file.encode()), {"HOLDFAST_STORE_REGION": "ams"})
    assert isinstance(result, Loaded)
    return result


@settings(deadline=None)
@given(CONFIGS)
def test_a_dumped_configuration_is_restored(config: Config) -> None:
    assert restore(dump(config)) == config


def test_a_dump_with_fields_of_another_version_is_restored() -> None:
    data = b'{"log": {"level": "debug", "colour": true}, "weather": {}}'
    assert restore(data) == Config(log=LogSettings(level="debug"))


@pytest.mark.parametrize("data", [b"", b"[]", b'{"log": {"level": 5}}'])
def test_an_invalid_dump_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        restore(data)


@settings(deadline=None)
@given(CONFIGS)
def test_the_shown_yaml_gives_the_same_configuration(config: Config) -> None:
    shown = as_yaml(Loaded(config, dict(loaded().origins)), origin=True)
    again = resolve(ConfigFile("again", shown.encode()), {})
    assert isinstance(again, Loaded), str(again)
    assert again.config == config


def test_the_table_has_a_line_per_field_with_its_origin() -> None:
    lines = as_table(loaded(), origin=True).splitlines()
    rows = [line.split() for line in lines]
    assert [row[0] for row in rows] == ["FIELD", *(path for path in SETTINGS if path in VALUES)]
    assert ["log.level", "debug", "f.yaml:2"] in rows
    assert ["store.region", '"ams"', "environment", "HOLDFAST_STORE_REGION"] in rows
    assert ["log.format", "auto", "default"] in rows


def test_the_table_leaves_origins_out_when_not_asked() -> None:
    assert "f.yaml" not in as_table(loaded(), origin=False)


def test_json_has_the_units_of_the_file_and_numbers_as_numbers() -> None:
    document = json.loads(as_json(loaded(), origin=False))
    assert document["runtime"]["stalled_after"] == "1m"
    assert document["runtime"]["crash_loop_restarts"] == 5
    assert document["store"]["endpoints"] == ["http://127.0.0.1:2379"]
    assert document["store"]["password_in_clear"] is False
    assert document["store"]["user"] is None


def test_json_with_origins_has_both_per_field() -> None:
    document = json.loads(as_json(loaded(), origin=True))
    assert document["log"]["level"] == {"value": "debug", "origin": "f.yaml:2"}


@pytest.mark.parametrize("name", VALUES)
def test_the_reference_describes_every_field(name: str) -> None:
    page = reference()
    doc = VALUES[name].doc
    for part in (f"### `{name}`", doc.what, doc.small, doc.big, f"`{variable(name)}`"):
        assert part in page


def test_the_reference_is_printed_by_the_module() -> None:
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-m", "holdfast.config.output.reference"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == reference()
