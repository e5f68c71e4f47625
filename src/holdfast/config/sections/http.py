"""HTTP: where a daemon serves its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from holdfast.config.schema.field import FieldDoc, Listen, LoopbackListen, Section

DEFAULT_PORTS: Mapping[str, int] = {"server": 9621, "agent": 9622, "balancer": 9623}
"""Loopback port of each role."""


class HttpSettings(Section, frozen=True, kw_only=True):
    """HTTP of every daemon."""

    address: Annotated[
        Listen,
        FieldDoc(
            "Address on which the daemon serves `/metrics`, without a password and without TLS: give an address that "
            "only the monitoring network reaches. `default` is the loopback address, with port 9621 in a server, 9622 "
            "in an agent and 9623 in a balancer; port 0 takes a free one; `off` serves nothing."
        ),
    ] = "default"
    api: Annotated[
        LoopbackListen,
        FieldDoc(
            "Address on which a worker `api` serves the read-only API under `/api/v1`, such as `127.0.0.1:9620`, to "
            "every user of this machine. Only a loopback address: the API has no passwords. It needs the extra `api`."
        ),
    ] = "off"

    def listens_on(self, role: str) -> tuple[str, int] | None:
        """Return address and port for that role; None if nothing is served."""
        if self.address == "off" or (self.address == "default" and role not in DEFAULT_PORTS):
            return None
        if self.address == "default":
            return "127.0.0.1", DEFAULT_PORTS[role]
        return _split(self.address)

    def api_listens_on(self) -> tuple[str, int] | None:
        """Return address and port of the API; None if it is off."""
        return None if self.api == "off" else _split(self.api)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
