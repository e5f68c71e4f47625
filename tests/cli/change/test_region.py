"""`holdfast region retire`: a region ends once it has no leader and no objects."""

from __future__ import annotations

import pytest

from holdfast.inventory.api import Fence
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.control.leader import LEADER
from tests.cli.change.store_site import StoreSite


def retire(site: StoreSite, *words: str) -> tuple[int, str]:
    done = site("region", "retire", site.region.name, "--reason", "moved to ams", *(words or ("--yes",)))
    return done.exit_code, done.stderr


@pytest.fixture
def led(site: StoreSite) -> StoreSite:
    """A region that a leader has written for, and that is empty."""
    site.inventory.raise_fence(Fence(site.region.segment, 1, 7))
    site.put(IDENTITY.key(site.region, "identity"), IDENTITY.encode(Identity("fleet-a", 1)))
    return site


def test_an_empty_region_without_a_leader_is_retired(led: StoreSite) -> None:
    code, said = retire(led)
    assert (code, f"retired {led.region.segment}: “moved to ams”" in said) == (0, True)
    assert led.inventory.regions() == set()
    assert led.run(lambda store: store.get(IDENTITY.key(led.region, "identity"))) is None
    code, said = retire(led)
    assert (code, said) == (1, f"Error: {led.region.segment} is no region of this inventory: nothing to retire\n")


def test_a_region_with_a_leader_is_refused(led: StoreSite) -> None:
    led.put(LEADER.key(led.region, "leader"), b"{}")
    code, said = retire(led)
    assert (code, "stop its servers first" in said) == (1, True)
    assert led.inventory.regions() == {led.region.segment}


def test_a_region_with_objects_is_refused_and_they_are_counted(led: StoreSite) -> None:
    led.write(led.endpoint(1), led.endpoint(2))
    code, said = retire(led)
    assert (code, "still has 2 endpoints in the store: delete them" in said) == (1, True)
    led.editor.change([led.endpoint(1)], who="alice")
    code, said = retire(led)
    assert (code, "still has 1 endpoints in the inventory: delete them" in said) == (1, True)
    assert led.inventory.regions() == {led.region.segment}


def test_without_confirmation_nothing_is_retired(led: StoreSite) -> None:
    done = led("region", "retire", led.region.segment, "--reason", "x", confirm="n\n")
    assert (done.exit_code, led.inventory.regions()) == (1, {led.region.segment})


def test_a_name_that_is_no_region_is_refused_with_a_sentence(site: StoreSite) -> None:
    done = site("region", "retire", "Not A Region", "--reason", "x", "--yes")
    assert (done.exit_code, "may have lower-case letters" in done.stderr) == (1, True)
