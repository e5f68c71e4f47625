"""Status: reports of agents in the inventory, warnings about stale ones, and the webhook for migrations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from holdfast.config.schema.field import FieldConflict, FieldDoc, SecretFile, Section
from holdfast.config.schema.scalars import is_loopback

_SECRET_WORDS = ("token", "secret", "password", "key=", "sig=")


class StatusSettings(Section, frozen=True, kw_only=True):
    """Status of agents and endpoints."""

    stale_after: Annotated[
        timedelta,
        FieldDoc(
            "A report that is older than this when it is processed counts as stale: a warning names the cause.",
            small="a small clock skew of a host raises warnings",
            big="status is hours behind before a warning is logged",
            least=timedelta(seconds=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(seconds=300)
    warn_every: Annotated[
        timedelta,
        FieldDoc(
            "Shortest interval between two such warnings of one worker; the first is logged at once.",
            small="the same warning fills the log",
            big="a persistent backlog is hardly visible in the log",
            least=timedelta(seconds=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(seconds=300)
    audit_every: Annotated[
        timedelta,
        FieldDoc(
            "Interval between two comparisons of all reports with the whole inventory.",
            small="audits load the database",
            big="a row that was changed by hand stays wrong for that long",
            least=timedelta(seconds=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(minutes=5)
    webhook: Annotated[
        str | None,
        FieldDoc(
            "URL that is called when a live migration has arrived: the network of its new host is ready, with "
            "interface and routes. It does not mean that the hypervisor has switched over. Called at least once, with "
            "the header Idempotency-Key; `null` for no calls."
        ),
    ] = None

    webhook_token_file: Annotated[
        SecretFile | None,
        FieldDoc(
            "File with a token for the webhook, sent as `Authorization: Bearer …`. Refused if every user of the "
            "machine can read it."
        ),
    ] = None

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.webhook is None:
            if self.webhook_token_file is not None:
                yield FieldConflict(("webhook_token_file", "webhook"), "needs status.webhook as well")
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
            yield FieldConflict(fields, "would send the token unencrypted: use https in status.webhook")


def _unusable(url: str) -> str | None:
    if not url.isascii() or not url.isprintable() or " " in url:
        return "characters outside printable ASCII have to be escaped with %"
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna"), parts.port
    except ValueError as error:  # includes names that DNS does not allow
        return str(error)
    return None if host else "it names no host"
