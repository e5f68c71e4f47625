"""A webhook: a notice as JSON, POSTed; taken is what is answered with 2xx in time. Whatever else happens is a sentence.

Nothing that stands in its URL or in its answer costs more than the call: whoever calls goes on.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.inventory.sql.thread import DatabaseThread, RunInThread
from holdfast.runtime.config_file import SecretRefused

TIMEOUT_S = 5.0
"""Without a sign of life from the webhook."""
DEADLINE_S = 10.0
"""For the whole answer: one that comes byte by byte is none."""


class _NoDetours(urllib.request.HTTPRedirectHandler):
    """A redirect would be followed with a GET, without the notice: a login page that answers 200 has not taken it."""

    def redirect_request(self, *_asked: object) -> None:
        return None


class _Call(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """One call, which can be ended from outside: time-outs of sockets begin anew with every byte."""

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[http.client.HTTPConnection] = []
        self.is_cut = False

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._kept, http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._kept, http.client.HTTPSConnection), request)

    def _kept(self, made: type[http.client.HTTPConnection], host: str, **options: Any) -> http.client.HTTPConnection:
        connection = made(host, **options)
        connect = connection.connect

        def in_time() -> None:
            connect()
            if self.is_cut:  # when there was nothing yet that could be
                raise TimeoutError

        connection.connect = in_time  # type: ignore[method-assign]
        self._connections.append(connection)
        return connection

    def cut(self) -> None:
        self.is_cut = True
        for open_now in [connection.sock for connection in self._connections if connection.sock is not None]:
            with contextlib.suppress(OSError):  # then it is over already
                open_now.shutdown(socket.SHUT_RDWR)


class Webhook:
    """POSTs notices as JSON."""

    def __init__(self, url: str, token: Callable[[], str] | None = None) -> None:
        """`token` is asked before every call, so that one that was renewed on disk is seen."""
        self._url = url
        self._token = token
        self._aside: RunInThread = DatabaseThread("webhook")

    async def __call__(self, told: dict[str, str]) -> str | None:
        return await self._aside(partial(self._post, told))

    def _post(self, told: dict[str, str]) -> str | None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": told["idempotency_key"]}
        try:
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token()}"
        except SecretRefused as refused:
            return f"the webhook is not called: status.webhook_token_file: {refused}"
        call = _Call()
        deadline = threading.Timer(DEADLINE_S, call.cut)
        deadline.daemon = True
        deadline.start()
        try:
            refusal = _refusal(urllib.request.build_opener(_NoDetours, call), self._url, headers, told)
        finally:
            deadline.cancel()
        # Half an answer looks like a whole one to the library.
        return f"the webhook has not answered within {DEADLINE_S:.0f} s" if call.is_cut else refusal


def _refusal(
    opener: urllib.request.OpenerDirector, url: str, headers: dict[str, str], told: dict[str, str]
) -> str | None:
    try:
        request = urllib.request.Request(  # noqa: S310 -- the configuration allows http and https only
            url, msgspec.json.encode(told), headers, method="POST"
        )
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return None if 200 <= answer.status < 300 else f"the webhook answered {answer.status}"
    except urllib.error.HTTPError as error:
        error.close()
        return f"the webhook answered {error.code}"
    except OSError as error:
        return f"the webhook cannot be reached: {getattr(error, 'reason', error)}"
    except http.client.HTTPException as error:
        return f"the webhook answered something that is not HTTP: {error!r}"
    except ValueError as error:  # also what a proxy of the environment is called
        return f"the webhook's URL cannot be called: {error}; see status.webhook"
