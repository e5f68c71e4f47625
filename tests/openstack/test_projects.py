"""Names of projects are remembered, and Keystone is asked no more often than needed, also while it is away."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.base.time import NEVER, Instant, seconds
from holdfast.openstack.projects import RETRY, ProjectNames, ProjectsUnknown
from holdfast.openstack.rows import ProjectRow


class Keystone:
    """Has projects, counts how often it is asked, and has a clock."""

    def __init__(self, **names: str) -> None:
        self.names = names
        self.asked = 0
        self.is_away = False
        self.now: Instant = NEVER + seconds(1_000)
        self.cache = ProjectNames(self._fetch, lambda: self.now)

    def _fetch(self) -> Mapping[str, ProjectRow]:
        self.asked += 1
        if self.is_away:
            raise ProjectsUnknown("it does not answer")
        return {each: ProjectRow(each, name) for each, name in self.names.items()}

    def found(self, *projects: str) -> dict[str, str]:
        return {each: row.name for each, row in self.cache.of(projects).items()}


def test_all_projects_are_read_at_once() -> None:
    keystone = Keystone(a="alpha", b="beta")

    assert keystone.found("a") == {"a": "alpha"}
    assert keystone.found("a", "b") == {"a": "alpha", "b": "beta"}
    assert keystone.asked == 1


def test_a_project_that_is_new_is_asked_for_at_once() -> None:
    keystone = Keystone(a="alpha")
    keystone.found("a")

    keystone.names["b"] = "beta"

    assert keystone.found("b") == {"b": "beta"}


def test_a_project_that_keystone_does_not_have_is_asked_for_once_in_a_while() -> None:
    keystone = Keystone(a="alpha")
    for _ in range(10):
        assert keystone.found("a", "gone") == {"a": "alpha"}
    assert keystone.asked == 1

    keystone.now += RETRY
    keystone.found("gone")

    assert keystone.asked == 2


def test_a_keystone_that_is_away_is_asked_once_in_a_while_and_the_names_that_were_read_stay() -> None:
    keystone = Keystone(a="alpha")
    keystone.found("a")
    keystone.is_away = True
    keystone.cache.refresh()
    for number in range(10):
        assert keystone.found("a", f"new-{number}") == {"a": "alpha"}
    assert keystone.asked == 2

    keystone.is_away, keystone.now = False, keystone.now + RETRY
    keystone.names["new-1"] = "one"

    assert keystone.found("new-1") == {"new-1": "one"}


def test_a_refresh_finds_renamed_and_deleted_projects_though_keystone_was_away_a_moment_ago() -> None:
    keystone = Keystone(a="alpha", b="beta")
    keystone.found("a")
    keystone.is_away = True
    keystone.cache.refresh()
    keystone.is_away, keystone.names = False, {"a": "omega"}

    keystone.cache.refresh()

    assert keystone.found("a", "b") == {"a": "omega"}
