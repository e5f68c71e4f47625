"""A real server with an API and without a store, which answers for itself."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from holdfast.cli import main
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import reserved_ports, tool, wait_until


def put(etcd: EtcdCluster, key: bytes, value: bytes) -> None:
    coded: dict[str, object] = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    etcd.members[0].ask("/v3/kv/put", coded)


class ApiDaemon:
    """Use it as a context manager. With `trust` the API is spoken to over TLS; `headers` go with every request."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        trust: ssl.SSLContext | None = None,
        headers: dict[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        # Held: a connection to a free port may be given that port as its source, and hear itself, and then the server
        # cannot have the port for a minute.
        self._held = contextlib.ExitStack()
        (self.port,) = self._held.enter_context(reserved_ports(1))
        self.runtime = folder / "run"
        self._log = folder / "log"
        self._trust, self._headers = trust, headers or {}
        self._settings: dict[str, object] = {
            "paths.runtime": self.runtime,
            "paths.state": folder / "state",
            "http.address": "127.0.0.1:0",
            "http.api": f"{host}:{self.port}",
            "store.endpoints": "http://127.0.0.1:9",
            **(settings or {}),
        }

    def __enter__(self) -> ApiDaemon:
        command = [tool("setpriv"), "--pdeathsig", "KILL", "--", sys.executable, "-m", "holdfast.cli", "server"]
        flags = [f"--set={name}={value}" for name, value in self._settings.items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, *flags], stdout=log, stderr=log)
        try:
            wait_until(self._answers, "the server to answer over the API", within=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        with self._held:
            self._process.terminate()
            self._process.wait(30)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def connection(self, source: str = "127.0.0.1") -> http.client.HTTPConnection:
        if self._trust is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20, source_address=(source, 0))
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=20, source_address=(source, 0), context=self._trust
        )

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
        connection = self.connection()
        try:
            connection.request(method, path, headers={**self._headers, **headers})
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def printed(self, *arguments: str) -> Any:
        result = CliRunner().invoke(main, [*arguments, "-o", "json", "--runtime", str(self.runtime)])
        return json.loads(result.stdout)

    def _answers(self) -> bool:
        """True once the elector answers, too: the API begins earlier, and then knows no server."""
        assert self._process.poll() is None, self.log()
        try:
            return 200 in (self.get("/follower")[0], self.get("/leader")[0])
        except OSError:
            return False  # nobody listens yet
