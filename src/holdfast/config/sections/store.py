"""The way to etcd: where it is, who we are to it, and how long a call may take."""

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
        FieldDoc("The members of the etcd cluster, tried in turn. All with http or all with https; name every member."),
    ] = ("http://127.0.0.1:2379",)
    region: Annotated[
        Name | None,
        FieldDoc(
            "The share of etcd that belongs to this control plane, `null` for none. Two control planes on one etcd "
            "need different regions; a changed region is a different, empty fleet."
        ),
    ] = None
    ca_file: Annotated[
        File | None,
        FieldDoc("Certificates (PEM) that etcd's own must be signed by; `null` for those that the system trusts."),
    ] = None
    cert_file: Annotated[
        File | None,
        FieldDoc(
            "Our client certificate (PEM), for an etcd with `--client-cert-auth`. Where etcd also has users, it must "
            "have no Common Name: etcd's gateway refuses those."
        ),
    ] = None
    key_file: Annotated[
        SecretFile | None,
        FieldDoc("The key of `cert_file` (PEM). Refused when every user of the machine could read it."),
    ] = None
    user: Annotated[Name | None, FieldDoc("Our name in etcd, for an etcd with authentication; `null` for none.")] = None
    password_file: Annotated[
        SecretFile | None,
        FieldDoc(
            "File with the password of `user` and nothing else. Refused when every user of the machine could read it."
        ),
    ] = None
    password_in_clear: Annotated[
        bool,
        FieldDoc(
            "Send the password without encryption, to members that are not on this machine, over http. Whoever can see "
            "the traffic can then rewrite the fleet."
        ),
    ] = False
    call_deadline: Annotated[
        timedelta,
        FieldDoc(
            "How long one call may take before the store counts as away.",
            small="an election or a compaction inside etcd looks like an outage",
            big="a member that hangs holds up every call for that long, and leases run out meanwhile",
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
                yield FieldConflict((field, other), f"needs store.{other} beside it")
        if self.password_file is None or self.password_in_clear:
            return
        for url in self.endpoints:
            if url.startswith("http:") and not is_loopback(url):
                yield FieldConflict(
                    ("endpoints", "password_file", "password_in_clear"),
                    f"would send the password in the clear to {url}: use https, or set store.password_in_clear to true",
                )
                return
