"""A PostgreSQL of the test run's own: one cluster in a temporary folder, reachable only over a unix socket.

It never syncs to disk, so it is quick: it survives a kill, and only a power cut would lose data. PostgreSQL
refuses to run as root; as root it runs as the user `postgres`, or `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from holdfast.testing.real.processes import (
    Process,
    Unavailable,
    as_user,
    children,
    folder,
    run,
    running,
    tool,
    wait_until,
)

_PATIENCE = 60.0
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "dynamic_shared_memory_type": "mmap",  # inside the folder, where it goes with it
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "log_min_messages": "warning",
}


class Postgres:
    """A running PostgreSQL. Databases are cheap: take a fresh one per test."""

    def __init__(self, home: Path, programs: Path, user: str | None) -> None:
        self.home = home
        self._programs = programs
        self._user = user
        self._made = 0
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(programs / "postgres"), "-D", str(home / "data"), "-k", str(home), *settings]
        self.process = Process(command, log=home / "postgres.log", user=user, orphaned=signal.SIGQUIT)

    def create_database(self) -> str:
        """Create an empty database and return its SQLAlchemy address."""
        self._made += 1
        name = f"test{self._made}"
        self.query("postgres", f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://holdfast@/{name}?host={self.home}"

    def query(self, database: str, sql: str) -> str:
        """Run one statement with psql and return its output, rows as lines."""
        where = ["-h", str(self.home), "-U", "holdfast", "-d", database]
        return run([str(self._programs / "psql"), *where, "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", sql]).strip()

    def dump(self, address: str, file: Path) -> Path:
        """Dump the database of that address with pg_dump, as a backup does."""
        where = ["-h", str(self.home), "-U", "holdfast"]
        run([str(self._programs / "pg_dump"), *where, "-Fc", "-f", str(file), database_name(address)])
        return file

    def restore(self, address: str, dump: Path) -> None:
        """Drop the database of that address with all its sessions, and restore it from a dump."""
        name = database_name(address)
        self.query("postgres", f"DROP DATABASE {name} WITH (FORCE)")
        self.query("postgres", f"CREATE DATABASE {name}")
        where = ["-h", str(self.home), "-U", "holdfast", "-d", name]
        run([str(self._programs / "pg_restore"), *where, "--single-transaction", str(dump)])

    @contextlib.contextmanager
    def replica(self) -> Iterator[Postgres]:
        """Run a streaming replica until the block ends."""
        with folder() as home:
            if self._user is not None:
                shutil.chown(home, self._user)
            where = ["-h", str(self.home), "-U", "holdfast", "-D", str(home / "data")]
            command = [str(self._programs / "pg_basebackup"), *where, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
            run([*as_user(self._user), *command])
            one = Postgres(home, self._programs, self._user)
            try:
                one.start()
                yield one
            finally:
                one.process.stop(signal.SIGINT)

    def has_replayed(self, primary: Postgres) -> bool:
        """Return True if this replica has everything that its primary has committed so far."""
        committed = primary.query("postgres", "SELECT pg_current_wal_lsn()")
        return self.query("postgres", f"SELECT pg_last_wal_replay_lsn() >= '{committed}'") == "t"

    def disconnect(self) -> None:
        """Receive nothing more from the primary, as a replica behind a broken link: what is committed now is lost."""
        self.query("postgres", "ALTER SYSTEM SET primary_conninfo = ''")
        self.query("postgres", "SELECT pg_reload_conf()")
        receivers = "SELECT count(*) FROM pg_stat_wal_receiver"
        wait_until(lambda: self.query("postgres", receivers) == "0", "the replica is disconnected", within=_PATIENCE)

    def promote(self) -> None:
        """Make this replica a primary."""
        self.query("postgres", "SELECT pg_promote()")

    def start(self) -> None:
        self.process.start()
        wait_until(self._answers, "PostgreSQL answers", within=_PATIENCE)

    def kill(self) -> None:
        """SIGKILL the server. What was committed is there after the next start."""
        self.process.pause()  # it must not fork a session between the listing and the kill
        sessions = children(self.process.pid)
        self.process.kill()
        # Sessions notice that their parent is gone, and until then keep a new server from starting.
        wait_until(lambda: not any(map(running, sessions)), "the sessions of PostgreSQL end", within=_PATIENCE)

    def restart(self) -> None:
        """Stop it, and every session, if it runs, and start it again."""
        self.process.stop(signal.SIGINT)
        self.start()

    def initialise(self) -> None:
        command = [str(self._programs / "initdb"), "-D", str(self.home / "data"), "-U", "holdfast"]
        run([*as_user(self._user), *command, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"])

    def _answers(self) -> bool:
        if not self.process.alive:
            raise RuntimeError(f"PostgreSQL ended: {self.process.output[-2000:]}")
        try:
            return self.query("postgres", "SELECT 1") == "1"
        except RuntimeError:
            return False


def database_name(address: str) -> str:
    """Return the name of the database in a SQLAlchemy address of ours."""
    return address.partition("?")[0].rpartition("/")[2]


@contextlib.contextmanager
def postgres_cluster() -> Iterator[Postgres]:
    """Run a PostgreSQL with the superuser `holdfast` until the block ends."""
    programs, user = _programs(), _user()
    with folder() as home:
        if user is not None:
            shutil.chown(home, user)
        server = Postgres(home, programs, user)
        server.initialise()
        try:
            server.start()
            yield server
        finally:
            server.process.stop(signal.SIGINT)


def _programs() -> Path:
    """Return the folder of the server's programs: Debian keeps them out of PATH, a folder per version."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    return versions[-1].parent if versions else Path(tool("initdb")).resolve().parent


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise Unavailable("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
