"""`holdfast sysdump`: one archive for a support case, with what the inspecting commands print and every daemon's
metrics, without secrets."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast import __version__
from holdfast.cli.common.config_flags import configuration_flags, effective
from holdfast.cli.common.control_socket import answer, label, roles, runtime_folder
from holdfast.cli.sysdump.scrub import scrubbed
from holdfast.config import FlagValue, Loaded
from holdfast.config.loading.resolve import VALUES, value_at
from holdfast.config.schema.field import SECRET
from holdfast.runtime.config_file import SecretRefused, read_secret
from holdfast.runtime.control import Request

_WITHIN_S = 60.0
_DECISIONS = 5_000
_AT_ONCE = 2

_LOCAL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("status.txt", ("status",)),
    ("status.json", ("status", "-o", "json")),
    ("history.json", ("history", "-o", "json", "-n", str(_DECISIONS))),
    ("servers.json", ("get", "servers", "-o", "json")),
    ("gates.json", ("gate", "list", "-o", "json")),
    ("intents.json", ("get", "intents", "-o", "json")),
)
"""Commands that take `--runtime`, by the file that gets their output."""
_CONFIGURED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("config.txt", ("config", "show", "--origin")),
    ("doctor.txt", ("doctor",)),
    ("leader.txt", ("leader",)),
)


@click.command()
@click.option("-f", "--file", "file", metavar="FILE", help="Archive to write. Default: host and time, in this folder.")
@click.option("--runtime", metavar="DIR", help="Runtime folder of the daemons.")
@configuration_flags
def sysdump(file: str | None, runtime: str | None, config_file: str | None, settings: tuple[FlagValue, ...]) -> None:
    """Collect the state of all daemons here into one archive for a support case. Secrets are removed.

    Nothing is sent anywhere: look into the archive before you do.
    """
    now = datetime.now(UTC)
    target = Path(file or f"holdfast-{platform.node()}-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    folder = runtime_folder(runtime)
    loaded = effective(config_file, settings)
    parts = {"about.json": msgspec.json.format(msgspec.json.encode(_about(now, folder))).decode()}
    parts |= dict(_outputs(folder, config_file, loaded))
    parts |= dict(_metrics(folder))
    secrets = list(_secrets(loaded))
    try:
        write(target, {name: scrubbed(text, secrets) for name, text in parts.items()}, now)
    except OSError as error:
        raise click.ClickException(f"{target} cannot be written: {error.strerror}") from error
    click.echo(f"wrote {target}: {len(parts)} files, without secrets; look into it before you send it", err=True)


def write(target: Path, parts: dict[str, str], now: datetime) -> None:
    """Write the archive, for its owner only. A file that is there already is not replaced."""
    top = target.name.removesuffix(".gz").removesuffix(".tar")
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in sorted(parts.items()):
            data = text.encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(now.timestamp()), 0o600
            archive.addfile(entry, io.BytesIO(data))


def _about(now: datetime, runtime: Path) -> dict[str, Any]:
    return {
        "holdfast": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "host": platform.node(),
        "time": now.isoformat(),
        "load": os.getloadavg(),
        "runtime": str(runtime),
        "daemons": roles(runtime),
    }


def _outputs(runtime: Path, config_file: str | None, loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Run the inspecting commands; each costs at most its own output."""
    named = config_file or loaded.file
    config = ("--config", named) if named else ()
    calls = [(name, (*words, "--runtime", str(runtime))) for name, words in _LOCAL]
    calls += [(name, (*words, *config)) for name, words in _CONFIGURED]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from zip((name for name, _ in calls), pool.map(lambda call: _run(call[1]), calls), strict=True)


def _run(words: tuple[str, ...]) -> str:
    command = [sys.executable, "-P", "-m", "holdfast.cli", *words]
    try:
        done = subprocess.run(  # noqa: S603 -- our own command
            command,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"holdfast {' '.join(words)}: no answer within {_WITHIN_S:g} s\n"
    except OSError as error:
        return f"holdfast {' '.join(words)} cannot be run: {error}\n"
    told = f"\n--- stderr ---\n{done.stderr}" if done.stderr else ""
    return f"{done.stdout}{told}\n--- exit code {done.returncode} ---\n"


def _metrics(runtime: Path) -> Iterator[tuple[str, str]]:
    for role in roles(runtime):
        try:
            text = str(answer(runtime, role, Request("metrics")))
        except click.ClickException as error:
            text = error.message
        yield f"metrics/{label(role)}.txt", text


def _secrets(loaded: Loaded) -> Iterator[str]:
    """Contents of the secret files of this configuration, as far as this user may read them: whoever may not cannot
    have put them into an output."""
    files = [value_at(loaded.config, path) for path, field in VALUES.items() if field.scalar is SECRET]
    files += [file for check in loaded.config.balancer.healthchecks.values() for _, file in check.secret_headers]
    for file in filter(None, files):
        try:
            yield read_secret(file, os.environ)
        except SecretRefused:
            continue
