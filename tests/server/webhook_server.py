"""A webhook server for tests."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from typing import Any

GARBAGE = 0
"""An answer that is not HTTP."""
HANG = 2
"""No answer at all."""
DRIP = 1
"""An answer that comes byte by byte and never ends."""


class Hook:
    """A webhook that answers with `answers`, and remembers what it received."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[int] = []
        self.location = "/login"
        self.authorizations: list[str | None] = []
        self.closing = threading.Event()
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.authorizations.append(self.headers["Authorization"])
                hook.heard.append((str(self.headers["Idempotency-Key"]), json.loads(body)))
                answer = hook.answers.pop(0) if hook.answers else 204
                if answer == HANG:
                    hook.closing.wait()
                    return
                if answer == DRIP:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                    with contextlib.suppress(OSError):  # the client hangs up when its deadline is over
                        while not hook.closing.wait(0.02):
                            self.wfile.write(b"y")
                    return
                if answer == GARBAGE:
                    self.wfile.write(b"what?\r\n\r\n")
                    return
                self.send_response(answer)
                self.send_header("Location", hook.location)
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return None

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/arrived"

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
