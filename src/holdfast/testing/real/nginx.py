"""nginx as a web server for tests: a single process that answers every request with its name, except /large."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import Process, tool, wait_until

PORT = 80
LARGE = 1 << 18
"""Bytes of /large, many packets."""
_CONFIGURATION = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000;
  keepalive_timeout 1h;
  server {{
    listen {port} backlog=4096;
    listen [::]:{port} backlog=4096 ipv6only=on;
    location = /large {{ root {folder}; }}
    location / {{ default_type text/plain; return 200 "{name}\\n"; }}
  }}
}}
"""


class Nginx:
    """A web server in a namespace. It has one process: killing it kills the server."""

    def __init__(self, namespace: Namespace, home: Path) -> None:
        self.name = namespace.name
        folder = home / self.name
        folder.mkdir()
        (folder / "large").write_bytes(bytes(LARGE))
        file = folder / "nginx.conf"
        file.write_text(_CONFIGURATION.format(folder=folder, name=self.name, port=PORT))
        command = namespace.command(tool("nginx"), "-e", str(folder / "error.log"), "-c", str(file))
        self.process = Process(command, log=folder / "log")
        self._namespace = namespace

    def start(self) -> None:
        """Start it and wait until it listens in both families."""
        self.process.start()
        wait_until(self._listens, f"nginx of {self.name} listens: {self.process.output}")

    def _listens(self) -> bool:
        return len(self._namespace.run("ss", "-Hltn", f"sport = :{PORT}").splitlines()) == 2

    def kill(self) -> None:
        self.process.kill()
