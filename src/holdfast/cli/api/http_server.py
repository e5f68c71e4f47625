"""HTTP server of the API: uvicorn, with bounds on connections, on sizes, and on the time in which a request arrives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import h11
import uvicorn
from litestar import Litestar
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.cli.api.certificate import ApiCertificate

_CONNECTIONS = 64
_WITHIN_S = 10.0


class ApiServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the worker."""
        yield


class _TimelyRequests(H11Protocol):
    """Cuts a client off that has not sent a whole request in time: each connection is one of a bounded number."""

    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._ends = self.loop.call_later(_WITHIN_S, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_incomplete = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if not is_incomplete:
            self._cancel()
        elif self._ends is None:
            self._ends = self.loop.call_later(_WITHIN_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _cancel(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None


def http_server(app: Litestar, certificate: ApiCertificate | None) -> ApiServer:
    tls: dict[str, Any] = {}
    if certificate is not None:
        tls["ssl_context_factory"] = lambda _config, _default: certificate.listening()
    return ApiServer(
        uvicorn.Config(
            app,
            http=_TimelyRequests,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=16_384,
            **tls,
        )
    )
