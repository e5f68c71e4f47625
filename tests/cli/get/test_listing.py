"""Tables of `get`: aligned columns, one row by name, names alone, documents."""

from __future__ import annotations

import click
import pytest

from holdfast.cli.get.listing import Listing

LISTING = Listing(
    ("WORKER", "STATE"), [["a/syncer", "ok"], ["b/elector", "leading"]], [{"name": "syncer"}, {"name": "elector"}], ""
)


def test_columns_are_aligned() -> None:
    assert LISTING.render("table").splitlines() == ["WORKER     STATE", "a/syncer   ok", "b/elector  leading"]


def test_one_row_by_its_name() -> None:
    assert LISTING.of("b/elector").render("name") == "b/elector"
    assert LISTING.of("b/elector").documents == [{"name": "elector"}]
    assert LISTING.of("syncer").render("name") == "a/syncer"
    with pytest.raises(click.ClickException, match="there is no c/syncer here"):
        LISTING.of("c/syncer")
