"""The sample configuration: changes nothing as it is, and has every setting at its default."""

from __future__ import annotations

import itertools

from holdfast.config import Config, ConfigFile, Layer, Loaded, resolve
from holdfast.config.loading.resolve import VALUES
from holdfast.config.output.sample import sample, uncommented


def loaded(text: str) -> Loaded:
    found = resolve(ConfigFile("holdfast.yaml", text.encode()), {}, ())
    assert isinstance(found, Loaded), str(found)
    return found


def test_as_it_is_the_sample_sets_nothing() -> None:
    found = loaded(sample())
    assert found.config == Config()
    assert {origin.layer for origin in found.origins.values()} == {Layer.DEFAULT}


def test_without_comment_signs_every_setting_has_its_default() -> None:
    found = loaded(uncommented(sample()))
    assert found.config == Config()
    assert {path for path, origin in found.origins.items() if origin.layer is Layer.FILE} >= set(VALUES)


def test_every_setting_is_explained_above_it() -> None:
    lines = [line.strip() for line in sample().splitlines()]
    explained = [line for above, line in itertools.pairwise(lines) if above.startswith("# ")]
    assert len([line for line in explained if line[:1] == "#" and line[1:2].isalpha() and ": " in line]) == len(VALUES)
