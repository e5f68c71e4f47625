"""HTTP: where a daemon serves its metrics and the API, and the certificate of the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, File, Listen, ListenOrOff, SecretFile, Section

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
        ListenOrOff,
        FieldDoc(
            "Address on which a worker `api` serves the dashboard, and the API under `/api/v1`, such as "
            "`127.0.0.1:9620`. On a loopback address every user of this machine can read them, and changes need an "
            "admin token. Any other address needs `cert_file` and `key_file`, and there every request needs a token, "
            "of which there must be one at the start (`holdfast token create NAME --role read`). It needs the extra "
            "`api`."
        ),
    ] = "off"
    cert_file: Annotated[
        File | None,
        FieldDoc(
            "Certificate of the API (PEM), with those of intermediate authorities; `null` for no TLS. This file and "
            "`key_file` are read again when they change."
        ),
    ] = None
    key_file: Annotated[
        SecretFile | None,
        FieldDoc("Private key of `cert_file` (PEM). Refused if every user of the machine can read it."),
    ] = None

    def conflicts(self) -> Iterator[FieldConflict]:
        for field, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
            if getattr(self, field) is not None and getattr(self, other) is None:
                yield FieldConflict((field, other), f"needs http.{other} as well")
        if self.is_api_remote and self.cert_file is None:
            yield FieldConflict(
                ("api", "cert_file"),
                "is no loopback address, and needs TLS: set http.cert_file and http.key_file, or write 127.0.0.1:PORT "
                "or [::1]:PORT and use an SSH tunnel",
            )

    @property
    def is_api_remote(self) -> bool:
        """True if other machines can reach the API."""
        listens_on = self.api_listens_on()
        return listens_on is not None and not ip_address(listens_on[0]).is_loopback

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
