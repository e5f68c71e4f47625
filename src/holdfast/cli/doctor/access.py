"""Checks for `doctor`: nobody else on the network can read or write the store. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.cli.doctor import Finding, Severity
from holdfast.config.schema.scalars import is_loopback
from holdfast.config.sections.store import StoreSettings


def examine(store: StoreSettings) -> Iterator[Finding]:
    """Examine the settings of a store that has answered, so that without a user it asks for none."""
    remote = [url for url in store.endpoints if not is_loopback(url)]
    clear = [url for url in remote if not url.startswith("https:")]
    if clear:
        sentence = f"{', '.join(clear)}: without TLS everybody on the way can read and change it; use https"
        yield Finding(Severity.WRONG, "access", sentence)
    if remote and store.user is None and store.cert_file is None:
        yield Finding(
            Severity.WRONG,
            "access",
            "etcd asks for neither a user nor a certificate: whoever reaches it can delete every route of the fleet; "
            "enable its authentication, and set store.user and store.password_file",
        )
    elif remote and not clear:
        yield Finding(Severity.GOOD, "access", "TLS, with a user or a client certificate")
    if not remote:
        yield Finding(Severity.GOOD, "access", "etcd is reached on loopback only")
