"""etcd's authentication: what a login costs, how many a fleet needs, and what a token costs per call.

Each part has an etcd of its own on this machine. `login_cpu_ms` is etcd's CPU time for one login, with its default
`--bcrypt-cost` of 10 and with 4; `fleet_login_cpu_s` is that for all hosts. The
`…_refused` figures say how many of `tokens` tokens are refused after etcd was restarted, or after a user was added:
that many hosts log in again, at once.
"""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from bench.benchmark import Benchmark
from bench.gauges import process_cpu_s
from bench.server import scratch
from holdfast.testing.real.etcd import EtcdMember, etcd_cluster
from holdfast.testing.real.processes import wait_until

_CLIENTS = 8
_USER = {"name": "holdfast-agent-r1-01", "password": "5f2c01aab71e09d34412fe7781c0a6be"}
_ROOT = {"name": "root", "password": "root"}


class Options(msgspec.Struct, frozen=True):
    hosts: Annotated[int, msgspec.Meta(ge=1, description="hosts of the fleet")] = 5_000
    logins: Annotated[int, msgspec.Meta(ge=1, description="logins of each sample")] = 60
    tokens: Annotated[int, msgspec.Meta(ge=1, description="tokens that are tried again")] = 20
    calls: Annotated[int, msgspec.Meta(ge=1, description="calls of each sample")] = 1_000


class Figures(msgspec.Struct, frozen=True):
    login_cpu_ms: float
    login_cpu_ms_cost_4: float
    fleet_login_cpu_s: float
    fleet_login_cpu_s_cost_4: float
    simple_call_cpu_us: float
    jwt_call_cpu_us: float
    simple_refused_restart: int
    jwt_refused_restart: int
    simple_refused_user: int
    jwt_refused_user: int


class _Guarded:
    """An etcd with authentication on, and one user who may do everything."""

    def __init__(self, etcd: EtcdMember) -> None:
        self._etcd = etcd
        for one in (_ROOT, _USER):
            self.ask("auth/user/add", one)
        self.ask("auth/role/add", {"name": "root"})
        for one in (_ROOT, _USER):
            self.ask("auth/user/grant", {"user": one["name"], "role": "root"})
        self.ask("auth/enable", {})

    def ask(self, path: str, body: object, token: str = "") -> tuple[int, dict[str, str]]:
        connection = http.client.HTTPConnection(self._etcd.url.removeprefix("http://"), timeout=120)
        try:
            headers = {"Content-Type": "application/json", **({"Authorization": token} if token else {})}
            connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def login(self, user: dict[str, str] = _USER) -> str:
        status, found = self.ask("auth/authenticate", user)
        if status != 200:
            raise RuntimeError(f"etcd refuses the login: {found}")
        return found["token"]

    def call(self, token: str) -> bool:
        """Read a key. Returns False if the token is refused."""
        return self.ask("kv/range", {"key": base64.b64encode(b"/holdfast").decode()}, token)[0] == 200

    def logins(self, count: int) -> float:
        """Log in so often, from several clients at once. Returns etcd's CPU time for one login."""
        before = process_cpu_s(self._etcd.process.pid)
        with ThreadPoolExecutor(_CLIENTS) as clients:
            list(clients.map(lambda _: self.login(), range(count)))
        return (process_cpu_s(self._etcd.process.pid) - before) / count

    def call_cpu_us(self, count: int) -> float:
        token = self.login()
        before = process_cpu_s(self._etcd.process.pid)
        for _ in range(count):
            self.call(token)
        return 1e6 * (process_cpu_s(self._etcd.process.pid) - before) / count

    def refused(self, tokens: Sequence[str]) -> int:
        return sum(not self.call(one) for one in tokens)

    def refused_after_restart(self, tokens: int) -> int:
        held = [self.login() for _ in range(tokens)]
        self._etcd.kill()
        self._etcd.start()
        wait_until(self._answers, "etcd to answer again", within=60)
        return self.refused(held)

    def _answers(self) -> bool:
        try:
            return bool(self.login())
        except (OSError, RuntimeError):
            return False

    def refused_after_user(self, tokens: int) -> int:
        held = [self.login() for _ in range(tokens)]
        self.ask("auth/user/add", {"name": "holdfast-agent-r1-02", "password": "x"}, self.login(_ROOT))
        return self.refused(held)


@contextmanager
def _etcd(*options: str) -> Iterator[_Guarded]:
    with etcd_cluster(options=options) as cluster:
        yield _Guarded(cluster.members[0])


def measure(options: Options) -> Figures:
    with _etcd() as usual, _etcd("--bcrypt-cost=4") as cheap, scratch() as folder:
        cpu, cpu_4 = usual.logins(options.logins), cheap.logins(options.logins)
        simple_call, simple_restart = cheap.call_cpu_us(options.calls), cheap.refused_after_restart(options.tokens)
        simple_user = cheap.refused_after_user(options.tokens)
        with _etcd("--bcrypt-cost=4", f"--auth-token={_jwt(Path(folder))}") as jwt:
            jwt_call, jwt_restart = jwt.call_cpu_us(options.calls), jwt.refused_after_restart(options.tokens)
            jwt_user = jwt.refused_after_user(options.tokens)
    return Figures(
        login_cpu_ms=1_000 * cpu,
        login_cpu_ms_cost_4=1_000 * cpu_4,
        fleet_login_cpu_s=cpu * options.hosts,
        fleet_login_cpu_s_cost_4=cpu_4 * options.hosts,
        simple_call_cpu_us=simple_call,
        jwt_call_cpu_us=jwt_call,
        simple_refused_restart=simple_restart,
        jwt_refused_restart=jwt_restart,
        simple_refused_user=simple_user,
        jwt_refused_user=jwt_user,
    )


def _jwt(folder: Path) -> str:
    """Make a key pair, and return etcd's option for tokens that it signs."""
    private, public = folder / "jwt.key", folder / "jwt.pub"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=24h"


BENCHMARK = Benchmark(Options, measure)
