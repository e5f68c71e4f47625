"""Connection to etcd: its members, our credentials, and the timeout of a call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import Endpoint, FieldConflict, FieldDoc, File, Name, SecretFile, Section
from holdfast.config.schema.scalars import is_loopback


class StoreSettings(Section, frozen=True, kw_only=True):
    """etcd."""

    endpoints: Annotated[
        tuple[Endpoint, ...],
        FieldDoc(
            "Members of the etcd cluster, in any order: each host has its own, by its name. Name every member; all "
            "with http or all with https."
        ),
    ] = ("http://127.0.0.1:2379",)
    region: Annotated[
        Name | None,
        FieldDoc(
            "Region: the part of etcd that belongs to this control plane; `null` for no region. Two control planes on "
            "one etcd need different regions. Changing it starts with a different, empty fleet."
        ),
    ] = None
    openstack: Annotated[
        bool,
        FieldDoc(
            "The control plane of this region belongs to OpenStack: its leader is elected at the key of "
            "networking-calico. Set it for agents, balancers and commands beside a Neutron; a server with "
            "`inventory.database: neutron` knows."
        ),
    ] = False
    ca_file: Annotated[
        File | None,
        FieldDoc(
            "CA certificates (PEM) for etcd's certificate; `null` for those that the system trusts. This file, "
            "`cert_file` and `key_file` are read again when they change."
        ),
    ] = None
    cert_file: Annotated[
        File | None,
        FieldDoc(
            "Client certificate (PEM), for an etcd with `--client-cert-auth`. If etcd has users as well, the "
            "certificate must have no Common Name: etcd's gateway refuses it otherwise."
        ),
    ] = None
    key_file: Annotated[
        SecretFile | None,
        FieldDoc("Private key of `cert_file` (PEM). Refused if every user of the machine can read it."),
    ] = None
    user: Annotated[Name | None, FieldDoc("User name in etcd, for an etcd with authentication; `null` for none.")] = (
        None
    )
    password_file: Annotated[
        SecretFile | None,
        FieldDoc("File with nothing but the password of `user`. Refused if every user of the machine can read it."),
    ] = None
    password_in_clear: Annotated[
        bool,
        FieldDoc(
            "Allow sending the password unencrypted over http to members on other machines. Anyone who sees the "
            "traffic can then rewrite the fleet."
        ),
    ] = False
    call_deadline: Annotated[
        timedelta,
        FieldDoc(
            "Timeout of one call; after that the store counts as unreachable.",
            small="an election or a compaction inside etcd counts as an outage",
            big="a hanging member delays every call for that long, and leases expire meanwhile",
            least=timedelta(milliseconds=100),
            most=timedelta(seconds=60),
        ),
    ] = timedelta(seconds=5)

    def conflicts(self) -> Iterator[FieldConflict]:
        yield from self._endpoint_conflicts()
        yield from self._credential_conflicts()

    def _endpoint_conflicts(self) -> Iterator[FieldConflict]:
        if not self.endpoints:
            yield FieldConflict(("endpoints",), "is empty: name at least one member of etcd")
        if len(set(self.endpoints)) < len(self.endpoints):
            yield FieldConflict(("endpoints",), "names a member twice")
        if len({url.partition(":")[0] for url in self.endpoints}) > 1:
            yield FieldConflict(("endpoints",), "mixes http and https: members of one cluster use the same scheme")
        if self.endpoints and not any(url.startswith("https:") for url in self.endpoints):
            for field in ("ca_file", "cert_file", "key_file"):
                if getattr(self, field) is not None:
                    yield FieldConflict((field, "endpoints"), "has no effect over http: use https in store.endpoints")

    def _credential_conflicts(self) -> Iterator[FieldConflict]:
        for field, other in (
            ("cert_file", "key_file"),
            ("key_file", "cert_file"),
            ("password_file", "user"),
            ("user", "password_file"),
        ):
            if getattr(self, field) is not None and getattr(self, other) is None:
                yield FieldConflict((field, other), f"needs store.{other} as well")
        if self.password_file is None or self.password_in_clear:
            return
        for url in self.endpoints:
            if url.startswith("http:") and not is_loopback(url):
                yield FieldConflict(
                    ("endpoints", "password_file", "password_in_clear"),
                    f"would send the password unencrypted to {url}: use https, or set store.password_in_clear to true",
                )
                return
