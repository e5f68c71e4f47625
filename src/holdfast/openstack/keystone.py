"""Reads all projects from Keystone, as the user of section `[keystone_authtoken]` in neutron.conf.

The request runs in a thread of its own, for which nobody waits longer than 10 s: the timeout of a request does not end
an answer that comes byte by byte.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
from keystoneauth1 import loading
from oslo_config import cfg

from holdfast.openstack.projects import ProjectsUnknown
from holdfast.openstack.rows import ProjectRow

SECTION = "keystone_authtoken"
_TIMEOUT_S = 3.0
_PATIENCE_S = 10.0


class _Projects(msgspec.Struct):
    """The answer of `GET /v3/projects`."""

    projects: list[ProjectRow]


class KeystoneProjects:
    """Fetches the projects. Nothing is loaded and nobody is asked before the first call."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._session: Any = None
        self._url = ""
        self._asking: Future[Mapping[str, ProjectRow]] | None = None

    def __call__(self) -> Mapping[str, ProjectRow]:
        if self._asking is None:
            self._asking = Future()
            threading.Thread(target=self._answer, args=[self._asking], name="keystone", daemon=True).start()
        try:
            found = self._asking.result(_PATIENCE_S)
        except TimeoutError as error:
            raise ProjectsUnknown(f"Keystone of section [{SECTION}] does not answer") from error
        except ProjectsUnknown:
            self._asking = None
            raise
        self._asking = None
        return found

    def _answer(self, asking: Future[Mapping[str, ProjectRow]]) -> None:
        try:
            asking.set_result(self._fetch())
        except Exception as error:  # noqa: BLE001 -- keystoneauth, its plugins and requests raise anything
            asking.set_exception(ProjectsUnknown(f"Keystone of section [{SECTION}]: {error}"))

    def _fetch(self) -> Mapping[str, ProjectRow]:
        if self._session is None:
            self._session, self._url = _session(self._files)
        found = msgspec.json.decode(self._session.get(f"{self._url}/projects").content, type=_Projects)
        return {each.id: each for each in found.projects}


def _session(files: Sequence[str]) -> tuple[Any, str]:
    """The session, and the URL of Keystone's API. Versions are not discovered, as networking-calico does not."""
    conf = cfg.ConfigOpts()
    loading.register_auth_conf_options(conf, SECTION)
    loading.register_session_conf_options(conf, SECTION)
    by_password = loading.get_plugin_loader("v3password")
    conf.register_opts(loading.get_auth_plugin_conf_options(by_password), SECTION)
    conf([word for file in files for word in ("--config-file", file)], project="neutron")
    ours = conf[SECTION]
    url = f"{(ours.auth_url or '').rstrip('/').removesuffix('/v3')}/v3"
    if ours.auth_type in {None, "password", "v3password"}:
        auth = by_password.load_from_options_getter(lambda one: url if one.dest == "auth_url" else ours[one.dest])
    else:
        auth = loading.load_auth_from_conf_options(conf, SECTION)
    session = loading.load_session_from_conf_options(conf, SECTION, auth=auth)
    session.timeout = session.timeout or _TIMEOUT_S
    # protection: a proxy that the environment names would get the password, and could answer for Keystone
    session.session.trust_env = False
    return session, url
