"""Services that a Neutron talks to, played on loopback: Nova, which records events, and Keystone, which names projects.

keystone.projects["p"] = {"name": "demo", "parent_id": "default"}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

_TOKEN = "token-of-neutron"  # noqa: S105 -- of no real service


class JsonRequest(NamedTuple):
    """A request; the body is parsed, None for none."""

    what: str
    token: str
    body: Any


class JsonAnswer(NamedTuple):
    """The answer to a request."""

    body: Any
    status: int = 200
    token: str = ""


class JsonServer:
    """Answers requests with JSON on a port of loopback."""

    def __init__(self, port: int, answer: Callable[[JsonRequest], JsonAnswer]) -> None:
        class JsonRequestHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self._reply()

            def _reply(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"] or 0))
                asked = JsonRequest(
                    f"{self.command} {self.path.rstrip('/')}",
                    self.headers["X-Auth-Token"] or "",
                    json.loads(text or b"null"),
                )
                found = answer(asked)
                body = json.dumps(found.body).encode()
                self.send_response(found.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if found.token:
                    self.send_header("X-Subject-Token", found.token)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name in the base class
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), JsonRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Nova:
    """Records the events that Neutron sends to Nova."""

    def __init__(self, port: int) -> None:
        self.events: list[dict[str, Any]] = []
        self._server = JsonServer(port, self._answer)

    def _answer(self, asked: JsonRequest) -> JsonAnswer:
        events = (asked.body or {}).get("events", ())
        self.events.extend(events)
        return JsonAnswer({"events": [{**each, "code": 200} for each in events]})

    def names(self, port: str) -> list[str]:
        """The names of the events about a port, in order."""
        return [each["name"] for each in self.events if each.get("tag") == port]

    def close(self) -> None:
        self._server.close()


class Keystone:
    """Gives tokens for the password of the configuration, and lists `projects`, by id. It may be away."""

    user, password = "neutron", "secret"

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/v3"
        self.projects: dict[str, dict[str, str | None]] = {}
        self.is_away = False
        self._server = JsonServer(port, self._answer)

    def _answer(self, asked: JsonRequest) -> JsonAnswer:
        if self.is_away:
            return JsonAnswer({"error": {"message": "away", "code": 503}}, 503)
        version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": self._url}]}
        match asked.what:
            case "GET /v3":  # networking-calico's client asks for it
                return JsonAnswer({"version": version})
            case "POST /v3/auth/tokens" if self._is_right(asked.body["auth"]["identity"]["password"]["user"]):
                return JsonAnswer({"token": self._token()}, 201, _TOKEN)
            case "GET /v3/projects" if asked.token == _TOKEN:
                return JsonAnswer({"projects": [{"id": each, **one} for each, one in self.projects.items()]})
        return JsonAnswer({"error": {"message": "not authorized", "code": 401}}, 401)

    def _is_right(self, user: Any) -> bool:
        return (user["name"], user["password"]) == (self.user, self.password)

    def _token(self) -> dict[str, Any]:
        place = {"url": self._url, "id": "e", "region": "r", "region_id": "r"}
        endpoints = [{"interface": each, **place} for each in ("public", "internal", "admin")]
        catalog = [{"type": "identity", "name": "keystone", "id": "k", "endpoints": endpoints}]
        times = {"issued_at": "2026-11-18T08:00:00.000000Z", "expires_at": "2099-01-01T00:00:00.000000Z"}
        return {"methods": ["password"], "user": {"id": "u", "name": self.user}, "catalog": catalog, **times}

    def close(self) -> None:
        self._server.close()
