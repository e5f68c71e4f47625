"""A real Neutron without Keystone and RabbitMQ: MariaDB, the API, neutron-periodic-workers with the Holdfast driver.

    with neutron(lambda: cluster) as fleet:
        network = fleet.post("networks", {"name": "private"})

Requests carry their project and roles in headers that the API trusts: everything listens on loopback only. `nova`
records the events that Neutron sends to Nova, `keystone` names projects. Felix is played by the tests, which write its
keys.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.pulse import Pulse
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.openstack_peers import Keystone, Nova
from holdfast.testing.real.processes import Process, Unavailable, folder, reserved_ports, run, tool, wait_until
from holdfast.testing.real.servers import QUICK

_PATIENCE = 240.0
_HEADERS = {"X-User-Id": "u", "X-Project-Id": "p", "X-Roles": "admin,service", "Content-Type": "application/json"}
_BARE = ("add_router_interface", "add_addresses", "remove_addresses")
"""Actions whose body stands under no name."""
_PIPELINE = "noauth = cors http_proxy_to_wsgi request_id catch_errors keystonecontext extensions neutronapiapp_v2_0"

CONFIG = """
[DEFAULT]
state_path = {home}/state
auth_strategy = noauth
dns_domain = example.org.
core_plugin = ml2
service_plugins = router,qos
transport_url = fake://
host = controller
api_paste_config = {home}/api-paste.ini
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
send_events_interval = 1
rpc_workers = 0
rpc_state_report_workers = 0
[database]
connection = mysql+pymysql://neutron@127.0.0.1:{database}/neutron?charset=utf8
[oslo_concurrency]
lock_path = {home}/state/lock
[ml2]
type_drivers = local,flat
tenant_network_types = local
mechanism_drivers = holdfast
extension_drivers = port_security,qos,dns
[keystone_authtoken]
auth_url = http://127.0.0.1:{keystone}
username = {user}
password = {password}
user_domain_name = Default
project_name = service
project_domain_name = Default
[nova]
auth_type = none
endpoint = http://127.0.0.1:{nova}/v2.1
[calico]
holdfast_config = {home}/holdfast.yaml
max_ingress_connections_per_port = 4711
"""

_API = """from neutron.wsgi.api import application
from sqlalchemy.orm import configure_mappers

# Neutron 29 answers 500 if the first request of a process is PUT /ports: get_port() uses Port.port_forwardings, which
# SQLAlchemy makes with the first object.
configure_mappers()
"""


class MariaDb:
    """One MariaDB in a folder, on loopback and open to every user of this machine."""

    def __init__(self, home: Path, port: int) -> None:
        self._home = home
        program = Path(os.environ.get("TEST_MARIADBD") or tool("mariadbd"))
        self._share = program.parent.parent / "share" / "mysql"
        self._base = [str(program), "--no-defaults", f"--datadir={home}", f"--lc-messages-dir={self._share}"]
        if os.geteuid() == 0:
            self._base.append("--user=root")
        options = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={home}/s", f"--pid-file={home}/pid"]
        quick = ["--skip-grant-tables", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M"]
        self.process = Process([*self._base, *options, *quick], log=home.parent / "mariadb.log")

    def prepare(self) -> None:
        """Make the system tables."""
        self._home.mkdir()
        files = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
        statements = ["create database mysql;", "use mysql;", *((self._share / file).read_text() for file in files)]
        script = self._home.parent / "bootstrap.sql"
        script.write_text("\n".join(statements))
        with script.open("rb") as stdin:
            run([*self._base, "--bootstrap"], stdin=stdin)

    def copy(self, folder: Path) -> None:
        """Stop the database if it runs, and copy its files into a new folder."""
        self.process.stop()
        shutil.copytree(self._home, folder)

    def restore(self, folder: Path) -> None:
        """Stop the database if it runs, and replace its files with a copy: what was committed since is lost."""
        self.process.stop()
        shutil.rmtree(self._home)
        shutil.copytree(folder, self._home)


class RefusedByNeutron(Exception):
    """An answer of Neutron that is not a success."""


class NeutronFleet:
    """Neutron's processes, and the etcd that Holdfast fills."""

    def __init__(self, home: Path, venv: Path, cluster: EtcdCluster, ports: Sequence[int]) -> None:
        self.home, self._venv, self._cluster = home, venv, cluster
        self._migrated = home / "migrated"
        database, api, nova, keystone = ports
        self._api = f"http://127.0.0.1:{api}/v2.0/"
        self._database = database
        self.database = MariaDb(home / "db", database)
        self.nova, self.keystone = Nova(nova), Keystone(keystone)
        self._configure(nova, keystone, cluster)
        self.api = Process(self._api_command(api), log=home / "api.log", orphaned=signal.SIGINT)
        command = [str(venv / "bin" / "neutron-periodic-workers"), "--config-file", str(home / "neutron.conf")]
        self.workers = Process(command, log=home / "workers.log", orphaned=signal.SIGTERM)

    def _configure(self, nova: int, keystone: int, cluster: EtcdCluster) -> None:
        home, user = self.home, {"user": Keystone.user, "password": Keystone.password}
        self._configure_server(cluster, "server-state")
        ports = {"database": self._database, "nova": nova, "keystone": keystone}
        home.joinpath("neutron.conf").write_text(CONFIG.format(home=home, **ports, **user))
        paste = (self._venv / "etc" / "neutron" / "api-paste.ini").read_text()
        pipeline = re.sub(r"^noauth = cors http_proxy_to_wsgi request_id.*$", _PIPELINE, paste, flags=re.MULTILINE)
        home.joinpath("api-paste.ini").write_text(pipeline)
        home.joinpath("api.py").write_text(_API)

    def _configure_server(self, cluster: EtcdCluster, state: str) -> None:
        settings = {
            "paths": {"runtime": str(self.home / "run"), "state": str(self.home / state)},
            "store": {"endpoints": list(cluster.endpoints)},
            "server": {"name": "ctl", **{key.removeprefix("server."): value for key, value in QUICK.items()}},
            "inventory": {"poll_every": "500ms", "resync_interval": "1h"},
            "status": {"warn_every": "1s"},
        }
        self.home.joinpath("holdfast.yaml").write_text(json.dumps(settings))

    def another_server(self, name: str) -> Process:
        """A server beside Neutron, as on another controller; not started yet."""
        home = self.home / name
        home.mkdir()
        settings = json.loads(self.home.joinpath("holdfast.yaml").read_text())
        settings["paths"] = {"runtime": str(home / "run"), "state": str(home / "state")}
        settings["server"]["name"] = name
        home.joinpath("holdfast.yaml").write_text(json.dumps(settings))
        neutron = f"--set=inventory.neutron_config={self.home / 'neutron.conf'}"
        words = ["server", "--config", str(home / "holdfast.yaml"), "--set=inventory.database=neutron", neutron]
        return Process([str(self._venv / "bin" / "python"), "-m", "holdfast.cli", *words], log=home / "log")

    def _api_command(self, port: int) -> Sequence[str]:
        options = [
            "--master",
            "--processes",
            "2",
            "--threads",
            "1",
            "--enable-threads",
            "--lazy-apps",
            "--need-app",
            "--die-on-term",
        ]
        where = ["--http-socket", f"127.0.0.1:{port}", "--pythonpath", str(self.home), "--module", "api:application"]
        mercy = ["--worker-reload-mercy", "2", "--buffer-size", "65535"]
        env = [f"OS_NEUTRON_CONFIG_DIR={self.home}", "OS_NEUTRON_CONFIG_FILES=neutron.conf"]
        return [tool("env"), *env, str(self._venv / "bin" / "pyuwsgi"), *where, *options, *mercy]

    def start(self) -> None:
        """Start everything; the database gets its tables from the real migrations."""
        self.database.prepare()
        self.start_database()
        self.sql("CREATE DATABASE neutron CHARACTER SET utf8mb3", database="")
        manage = str(self._venv / "bin" / "neutron-db-manage")
        run([manage, "--config-file", str(self.home / "neutron.conf"), "upgrade", "heads"])
        # Made now: a change of the table under a running API makes a request of it fail with 500.
        self.sql("CREATE TABLE refused_by_tests (port_id VARCHAR(36) PRIMARY KEY)")
        refuse = "NEW.status = 'DOWN' AND NEW.id IN (SELECT port_id FROM refused_by_tests)"
        self.sql(
            "CREATE TRIGGER refuse BEFORE UPDATE ON ports FOR EACH ROW "
            f"IF {refuse} THEN SIGNAL SQLSTATE '45000'; END IF"
        )
        self.database.copy(self._migrated)
        self.start_database()
        self.workers.start()
        self.start_api()

    @contextlib.contextmanager
    def empty(self, cluster: EtcdCluster) -> Iterator[None]:
        """Have this Neutron without any object and any server, and with another etcd, until the block ends."""
        saved, ours = self.home / "saved", self._cluster
        self.workers.kill_tree()
        self.database.copy(saved)
        try:
            self._exchange(self._migrated, cluster, "other-state")
            yield
        finally:
            if self.workers.alive:
                self.workers.kill_tree()
            self._exchange(saved, ours, "server-state")
            shutil.rmtree(saved)
            shutil.rmtree(self.home / "other-state", ignore_errors=True)
            self.workers.start()

    def _exchange(self, files: Path, cluster: EtcdCluster, state: str) -> None:
        """Restart API and database with other files of the database and with another etcd."""
        self.api.kill_tree()
        self._cluster = cluster
        self._configure_server(cluster, state)
        self.database.restore(files)
        self.start_database()
        self.start_api()

    def start_database(self) -> None:
        """Start the database and wait until it answers."""
        self.database.process.start()
        self.sql("SELECT 1", database="", patient=True)

    def start_api(self) -> None:
        self.api.start()
        try:
            wait_until(self._serves, "Neutron's API serves", within=_PATIENCE)
        except TimeoutError as error:
            raise RuntimeError(f"{error}; its log ends: {self.api.output[-3000:]}") from error

    def worker_pid(self, name: str) -> int:
        """Return the pid of a worker of `holdfast server`, from the board."""
        pulse = Board.open(self.home / "run" / "server.board", read_only=True).cell(name, Pulse).read()
        assert pulse is not None, f"{name} has shown no pulse yet"
        return pulse.pid

    def stop(self) -> None:
        for process in (self.workers, self.api, self.database.process):
            if process.alive:
                process.kill_tree()
        self.nova.close()
        self.keystone.close()

    def _serves(self) -> bool:
        try:
            self.get("agents")
        except (OSError, RefusedByNeutron):
            return False
        return True

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._ask("POST", path, body)

    def put(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._ask("PUT", path, body)

    def delete(self, path: str) -> None:
        self._ask("DELETE", path, None)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """Ask the API. The body goes under the name of the resource, and the answer comes from under it."""
        name = path.split("?")[0].split("/")
        name = name[1:] if name[0] == "qos" else name
        plural = name[-1] if len(name) % 2 else name[-2]
        single = {"policies": "policy", "activate": "binding"}.get(plural, plural.removesuffix("s")).replace("-", "_")
        data = None if body is None else json.dumps(body if plural in _BARE else {single: body}).encode()
        request = urllib.request.Request(self._api + path, data, _HEADERS, method=method)  # noqa: S310 -- loopback
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310 -- loopback
                found = json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            log = f"; the API's log ends: {self.api.output[-3000:]}" if error.code >= 500 else ""
            raise RefusedByNeutron(f"{method} {path}: {error.code} {error.read().decode()[:500]}{log}") from error
        return next(iter(found.values())) if isinstance(found, dict) and len(found) == 1 else found

    def sql(self, statement: str, *, database: str = "neutron", patient: bool = False) -> list[list[Any]]:
        """Run one statement on Neutron's database, behind Neutron's back."""
        program = (
            "import json, sys, pymysql; c = pymysql.connect(host='127.0.0.1', port=int(sys.argv[1]), user='neutron', "
            "database=sys.argv[2] or None, autocommit=True); k = c.cursor(); k.execute(sys.argv[3]); "
            "print(json.dumps(k.fetchall(), default=str))"
        )
        command = self._on_database(program, database, statement)
        if patient:
            wait_until(lambda: _succeeds(command), "MariaDB answers", within=_PATIENCE)
        rows: list[list[Any]] = json.loads(run(command))
        return rows

    @contextlib.contextmanager
    def locked(self, statement: str) -> Iterator[None]:
        """Hold what a statement such as LOCK TABLES locks until the block ends."""
        program = (
            "import sys, pymysql; c = pymysql.connect(host='127.0.0.1', port=int(sys.argv[1]), user='neutron', "
            "database=sys.argv[2]); c.cursor().execute(sys.argv[3]); print(flush=True); sys.stdin.read()"
        )
        command = self._on_database(program, "neutron", statement)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:  # noqa: S603
            assert holder.stdin is not None
            assert holder.stdout is not None
            try:
                assert holder.stdout.readline(), f"not locked: {statement}"
                yield
            finally:
                holder.stdin.close()

    @contextlib.contextmanager
    def refusing_down(self, port: str) -> Iterator[None]:
        """Have the database refuse to set this port DOWN until the block ends."""
        self.sql(f"INSERT INTO refused_by_tests VALUES ('{port}')")  # noqa: S608 -- an id of our own
        try:
            yield
        finally:
            self.sql("DELETE FROM refused_by_tests")

    def waits_for_lock(self, statement: str, *, in_snapshot: bool = False) -> bool:
        """True while a statement that contains this text waits for a lock on a table, in a snapshot that is open."""
        waiting = f"state LIKE 'Waiting for table%' AND info LIKE '%{statement}%'"
        if in_snapshot:
            trx = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx"
            waiting += f" AND id IN ({trx} WHERE trx_isolation_level = 'REPEATABLE READ')"
        return bool(self.sql(f"SELECT id FROM information_schema.processlist WHERE {waiting}"))  # noqa: S608 -- our own

    def _on_database(self, program: str, database: str, statement: str) -> Sequence[str]:
        return [str(self._venv / "bin" / "python"), "-c", program, str(self._database), database, statement]

    def store(self, prefix: str) -> dict[str, Any]:
        """The values in etcd under a prefix, by key."""
        return {key: json.loads(value) for key, (value, _) in self._entries(prefix).items()}

    def revisions(self, prefix: str) -> dict[str, int]:
        """The revisions at which keys under a prefix were written last."""
        return {key: revision for key, (_, revision) in self._entries(prefix, keys_only=True).items()}

    def count(self, prefix: str) -> int:
        """The number of keys under a prefix."""
        return int(self._range(prefix, count_only=True).get("count", 0))

    def _entries(self, prefix: str, **options: bool) -> dict[str, tuple[bytes, int]]:
        pairs = self._range(prefix, **options).get("kvs", ())
        unpacked = ((base64.b64decode(each["key"]).decode(), each) for each in pairs)
        return {key: (base64.b64decode(each.get("value", "")), int(each["mod_revision"])) for key, each in unpacked}

    def _range(self, prefix: str, **options: bool) -> dict[str, Any]:
        start, end = prefix.encode(), prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1])
        return self._cluster.members[0].ask("/v3/kv/range", {"key": _b64(start), "range_end": _b64(end), **options})

    def revision(self) -> int:
        """The present revision of etcd."""
        return int(self._cluster.members[0].ask("/v3/kv/range", {"key": _b64(b"\0")})["header"]["revision"])

    def was_written(self, key: str, after: int) -> bool:
        """True if the key had a value at any revision after that one."""
        return any(self._past(key, after).values())

    def gone_at(self, key: str, after: int) -> int | None:
        """The first revision after that one at which the key had no value."""
        return next((revision for revision, had_value in self._past(key, after).items() if not had_value), None)

    def _past(self, key: str, after: int) -> dict[int, bool]:
        """The revisions after that one, and whether the key had a value at each."""
        ask, asked = self._cluster.members[0].ask, {"key": _b64(key.encode())}
        revisions = range(after + 1, self.revision() + 1)
        return {each: "kvs" in ask("/v3/kv/range", {**asked, "revision": each}) for each in revisions}

    def put_key(self, key: str, value: Any) -> None:
        self._cluster.members[0].ask(
            "/v3/kv/put", {"key": _b64(key.encode()), "value": _b64(json.dumps(value).encode())}
        )

    def delete_key(self, key: str) -> None:
        self._cluster.members[0].ask("/v3/kv/deleterange", {"key": _b64(key.encode())})

    def resync(self) -> str:
        """Compare Neutron with etcd now, as an operator does."""
        code, printed = self.operator("resync")
        if code:
            raise RuntimeError(printed)
        return printed

    def resynced(self) -> bool:
        """Compare Neutron with etcd now. Returns False while no leader answers here."""
        try:
            self.resync()
        except RuntimeError:
            return False
        return True

    def check(self) -> tuple[int, str]:
        """Run `holdfast openstack check` as an operator does. Returns its exit code and what it printed."""
        return self._run("openstack", "check", "--neutron-config", str(self.home / "neutron.conf"))

    def operator(self, *words: str) -> tuple[int, str]:
        """Run a command of the operator on the leader's machine. Returns its exit code and what it printed."""
        return self._run(*words, "--runtime", str(self.home / "run"))

    def _run(self, *words: str) -> tuple[int, str]:
        command = [str(self._venv / "bin" / "holdfast"), *words]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
        return done.returncode, done.stdout + done.stderr

    def set_port_status(self, port: str, host: str, status: str) -> bool:
        """Write a status into Neutron as the status worker does; True if the port was bound to that host."""
        program = (
            "import sys; from holdfast.openstack.plugin import NeutronPlugin; "
            "print(NeutronPlugin([sys.argv[1]]).set_port_status(*sys.argv[2:]))"
        )
        printed = self.python(program, str(self.home / "neutron.conf"), port, host, status)
        return printed.split()[-1] == "True"

    def python(self, program: str, *words: str) -> str:
        """Run a Python program in Neutron's environment. Returns what it printed."""
        return run([str(self._venv / "bin" / "python"), "-c", program, *words])

    @property
    def store_endpoint(self) -> str:
        """The URL of etcd."""
        return self._cluster.endpoints[0]

    def holdfast(self, *words: str) -> str:
        """Run a command of the operator that reads Neutron, from its environment."""
        program, config = str(self._venv / "bin" / "holdfast"), str(self.home / "holdfast.yaml")
        files = f"--set=inventory.neutron_config={self.home / 'neutron.conf'}"
        return run([program, *words, "--config", config, "--set=inventory.database=neutron", files])


def _succeeds(command: Sequence[str]) -> bool:
    try:
        run(command)
    except RuntimeError:
        return False
    return True


def _b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


@contextlib.contextmanager
def neutron(etcd: Callable[[], EtcdCluster]) -> Iterator[NeutronFleet]:
    """Start a Neutron from the environment that `make test-openstack` made. Raises `Unavailable`."""
    venv = os.environ.get("TEST_OPENSTACK_VENV")
    if not venv:
        raise Unavailable("Neutron is run by `make test-openstack` only")
    with folder() as home, reserved_ports(4) as ports:
        fleet = NeutronFleet(home, Path(venv), etcd(), ports)
        try:
            fleet.start()
            yield fleet
        finally:
            fleet.stop()
