"""Webhook: POSTs a notification as JSON. A 2xx answer in time means accepted; every other outcome is a sentence.

Redirects are not followed: a login page that answers 200 to a GET has not accepted anything. A bad URL or answer fails
only this call. It uses h11 directly, because `store.transport.http` accepts no URL with a path, no headers of the
caller, and no reply that ends with the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, urlsplit

import h11
import msgspec

from holdfast.runtime.config_file import SecretRefused

TIMEOUT_S = 5.0
"""Time without any byte from the webhook."""
DEADLINE_S = 10.0
"""Time for the whole call: an answer that comes byte by byte never ends."""
_CHUNK = 65_536


class Webhook:
    """`token` is called before every notification, so that a token that was renewed on disk is used."""

    def __init__(self, url: str, token: Callable[[], str] | None = None) -> None:
        self._url = url
        self._token = token

    async def __call__(self, notice: Mapping[str, str]) -> str | None:
        """Return None when the webhook accepted the notification, else why it did not."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": notice["idempotency_key"]}
        try:
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token()}"
        except SecretRefused as refused:
            return f"the webhook is not called: status.webhook_token_file: {refused}"
        try:
            async with asyncio.timeout(DEADLINE_S) as deadline:
                status = await _post(urlsplit(self._url), headers, msgspec.json.encode(notice))
        except TimeoutError:
            if deadline.expired():
                return f"the webhook has not answered within {DEADLINE_S:.0f} s"
            return "the webhook cannot be reached: timed out"
        except h11.RemoteProtocolError as error:
            return f"the webhook answered something that is not HTTP: {error}"
        except OSError as error:
            return f"the webhook cannot be reached: {error}"
        except h11.LocalProtocolError:  # its text could contain the token
            return "the webhook's URL or token has characters that HTTP does not allow; see status.webhook"
        except ValueError as error:
            return f"the webhook's URL cannot be called: {error}; see status.webhook"
        return None if 200 <= status < 300 else f"the webhook answered {status}"


async def _post(url: SplitResult, headers: Mapping[str, str], body: bytes) -> int:
    """Return the status of the answer; its body is not read."""
    if not url.hostname:
        raise ValueError(f"{url.geturl()!r} has no host")
    tls = ssl.create_default_context() if url.scheme == "https" else None
    http = h11.Connection(h11.CLIENT)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    fixed = {"Host": url.netloc.rpartition("@")[2], "Content-Length": str(len(body)), "Connection": "close"}
    request = h11.Request(method="POST", target=target, headers=list({**fixed, **headers}.items()))
    message = [http.send(part) for part in (request, h11.Data(data=body), h11.EndOfMessage())]
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(url.hostname, url.port or (443 if tls else 80), ssl=tls)
    try:
        writer.write(b"".join(filter(None, message)))
        while True:
            event = http.next_event()
            if isinstance(event, h11.Response):
                return event.status_code
            if event is h11.NEED_DATA:
                async with asyncio.timeout(TIMEOUT_S):
                    http.receive_data(await reader.read(_CHUNK))
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionResetError("the connection was closed without an answer")
    finally:
        writer.transport.abort()
