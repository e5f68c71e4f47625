"""`holdfast store adopt` before the first start: no server, and a store that another controller has filled."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.model.control.identity import IDENTITY, Identity
from tests.cli.change.store_site import StoreSite


@pytest.fixture
def config(site: StoreSite, tmp_path: Path) -> Path:
    file = tmp_path / "server.yaml"
    settings = {
        "paths": {"state": str(tmp_path / "state"), "runtime": str(site.runtime)},
        "store": {"endpoints": list(site.cluster.endpoints), "region": site.region.name},
        "inventory": {"database": site.engine.url.render_as_string()},
    }
    file.write_text(yaml.safe_dump(settings))
    return file


def adopt(site: StoreSite, config: Path, *words: str) -> Result:
    where = ["--config", str(config), "--runtime", str(site.runtime)]
    return CliRunner().invoke(main, ["store", "adopt", "--reason", "migration", *where, *words])


def test_it_shows_what_differs_and_names_both_sides(site: StoreSite, config: Path) -> None:
    site.editor.change([site.endpoint(1)], who="alice")
    site.write(site.endpoint(1), site.endpoint(2))

    would = adopt(site, config, "--dry-run")
    assert "unwitnessed: 1" in would.stderr
    assert site.inventory.fleet() is None

    done = adopt(site, config, "--yes")

    assert done.exit_code == 0, done.stderr
    assert "begins with epoch 1" in done.stderr
    key = IDENTITY.key(site.region, "identity")
    found = IDENTITY.decode(key, site.run(lambda store: store.get(key)).value)  # type: ignore[union-attr]
    assert isinstance(found, Identity)
    assert found.fleet == site.inventory.fleet()
    assert set(site.entries()) == {site.key(1), site.key(2)}


def test_an_empty_store_needs_no_adoption(site: StoreSite, config: Path) -> None:
    refused = adopt(site, config, "--yes")

    assert refused.exit_code == 1
    assert "the store is empty, and the first leader names it" in refused.stderr
