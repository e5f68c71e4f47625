"""The way back: what agents report goes into the inventory; when that is late, and who hears of a migration."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from holdfast.config.schema.field import FieldConflict, FieldDoc, SecretFile, Section
from holdfast.config.schema.scalars import is_loopback

_SECRET_WORDS = ("token", "secret", "password", "key=", "sig=")


class StatusSettings(Section, frozen=True, kw_only=True):
    """Agents' and endpoints' status."""

    stale_after: Annotated[
        timedelta,
        FieldDoc(
            "A report that is older than this when it is handled is warned about, with whose doing it is.",
            small="hosts whose clocks are a little off look late",
            big="status is hours behind before anybody hears of it",
            least=timedelta(seconds=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(seconds=300)
    warn_every: Annotated[
        timedelta,
        FieldDoc(
            "Between two such warnings of one worker; the first is never kept back.",
            small="a log full of the same sentence",
            big="nobody notices that it goes on",
            least=timedelta(seconds=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(seconds=300)
    audit_every: Annotated[
        timedelta,
        FieldDoc(
            "Between two comparisons of all reports with all that the inventory says.",
            small="needless load on the database",
            big="what somebody changed by hand stays wrong for that long",
            least=timedelta(seconds=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(minutes=5)
    webhook: Annotated[
        str | None,
        FieldDoc(
            "URL that is told when a live migration has arrived, which is when the network of its new host is ready: "
            "interface and routes are there. Whether the hypervisor has switched over is not known. `null` for nobody. "
            "It is told at least once, with the header Idempotency-Key."
        ),
    ] = None

    webhook_token_file: Annotated[
        SecretFile | None,
        FieldDoc(
            "File with a token for the webhook, sent as `Authorization: Bearer …`. Refused when every user of the "
            "machine could read it."
        ),
    ] = None

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.webhook is None:
            if self.webhook_token_file is not None:
                yield FieldConflict(("webhook_token_file", "webhook"), "needs status.webhook beside it")
        elif not self.webhook.startswith(("http://", "https://")):
            yield FieldConflict(("webhook",), "must begin with http:// or https://")
        elif "@" in self.webhook:
            yield FieldConflict(("webhook",), "holds a user name: take everything up to @ out of the URL")
        elif (why := _unusable(self.webhook)) is not None:
            yield FieldConflict(("webhook",), f"cannot be called: {why}")
        else:
            yield from self._secret_conflicts(self.webhook)

    def _secret_conflicts(self, url: str) -> Iterator[FieldConflict]:
        fields = "webhook", "webhook_token_file"
        if any(word in urlsplit(url).query.lower() for word in _SECRET_WORDS):
            yield FieldConflict(fields, "holds what looks like a secret: use status.webhook_token_file")
        if self.webhook_token_file is not None and url.startswith("http:") and not is_loopback(url):
            yield FieldConflict(fields, "would send the token in the clear: use https in status.webhook")


def _unusable(url: str) -> str | None:
    if not url.isascii() or not url.isprintable() or " " in url:
        return "what is not a printable ASCII character has to be escaped with %"
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna"), parts.port
    except ValueError as error:  # also what is no name in DNS
        return str(error)
    return None if host else "it names no host"
