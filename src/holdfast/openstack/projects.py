"""Names and parents of projects, which Neutron's database does not have: from Keystone, and remembered.

Keystone is no condition for an endpoint. While it is away, projects that were never read have no name: their endpoints
are written without one and keep the name that they have (rule 11). A resync reads all projects anew, and so finds
projects that were renamed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

import structlog

from holdfast.model.base.time import Duration, Instant
from holdfast.openstack.rows import ProjectRow

log = structlog.get_logger(__name__)

RETRY = Duration(seconds=60)
"""How long Keystone is not asked again for a project that it does not have, or after it did not answer."""


class ProjectsUnknown(Exception):
    """The projects could not be read. The message is one sentence."""


class ProjectNames:
    """The projects that Keystone named last; `fetch` reads all of them, or raises `ProjectsUnknown`."""

    def __init__(self, fetch: Callable[[], Mapping[str, ProjectRow]], now: Callable[[], Instant]) -> None:
        self._fetch = fetch
        self._now = now
        self._lock = threading.Lock()
        self._known: Mapping[str, ProjectRow] = {}
        self._absent: dict[str, Instant] = {}
        """Projects that Keystone did not have, and when it was asked."""
        self._failed: Instant | None = None

    def refresh(self) -> None:
        """Read all projects anew."""
        with self._lock:
            self._read()

    def of(self, projects: Collection[str]) -> Mapping[str, ProjectRow]:
        """Those of these projects that have a name. Keystone is asked if one of them is new."""
        with self._lock:
            absent = set(projects) - self._known.keys()
            if absent and self._may_ask(absent):
                self._read()
                self._absent |= dict.fromkeys(absent - self._known.keys(), self._now())
            return {one: self._known[one] for one in projects if one in self._known}

    def _may_ask(self, absent: Collection[str]) -> bool:
        now = self._now()
        if self._failed is not None and now - self._failed < RETRY:
            return False
        return any(one not in self._absent or now - self._absent[one] >= RETRY for one in absent)

    def _read(self) -> None:
        try:
            self._known = self._fetch()
        except ProjectsUnknown as error:
            if self._failed is None:  # once until it answers again
                log.warning("names of projects are unknown; endpoints keep those that they have", error=str(error))
            self._failed = self._now()
            return
        if self._failed is not None:
            log.info("names of projects are known again", projects=len(self._known))
        self._failed = None
        self._absent = {}
