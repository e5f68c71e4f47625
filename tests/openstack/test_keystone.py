"""Keystone's client: a proxy of the environment gets no request, and so no password."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("keystoneauth1", reason="needs keystoneauth1: make test-openstack")

HERE = "127.0.0.1"


class _Keystone(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        token = {"token": {"methods": ["password"], "expires_at": "2099-01-01T00:00:00.000000Z", "catalog": []}}
        self._answer(token if self.path.endswith("/auth/tokens") else {})

    def do_GET(self) -> None:
        self._answer({"projects": [{"id": "p", "name": "demo", "parent_id": "default"}]})

    def _answer(self, document: object) -> None:
        self.server.heard.append(self.path)  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps(document).encode()
        self.send_response(201 if self.command == "POST" else 200)
        self.send_header("X-Subject-Token", "t")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""


@pytest.fixture
def servers() -> Iterator[list[http.server.ThreadingHTTPServer]]:
    """A Keystone, and a proxy that would answer like one."""
    made = [http.server.ThreadingHTTPServer((HERE, 0), _Keystone) for _ in range(2)]
    threads = [threading.Thread(target=one.serve_forever) for one in made]
    for one, thread in zip(made, threads, strict=True):
        one.heard = []  # type: ignore[attr-defined]
        thread.start()
    try:
        yield made
    finally:
        for one, thread in zip(made, threads, strict=True):
            one.shutdown()
            thread.join(30)
            one.server_close()


def test_a_proxy_of_the_environment_gets_nothing(
    servers: list[http.server.ThreadingHTTPServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.openstack.keystone import KeystoneProjects

    keystone, proxy = servers
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{HERE}:{proxy.server_address[1]}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "neutron.conf"
    file.write_text(
        f"[keystone_authtoken]\nauth_url = http://{HERE}:{keystone.server_address[1]}\nauth_type = password\n"
        "username = neutron\npassword = hunter2\nproject_name = service\n"
        "user_domain_name = Default\nproject_domain_name = Default\n"
    )
    assert KeystoneProjects([str(file)])()["p"].name == "demo"
    assert keystone.heard  # type: ignore[attr-defined]
    assert proxy.heard == []  # type: ignore[attr-defined]
