"""The command line of `holdfast server` beside a Neutron. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class CalicoOptions(NamedTuple):
    """Section `[calico]` of neutron.conf; empty for what is not set."""

    endpoints: tuple[str, ...]
    region: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    config: str = ""


def server_command(python: str, options: CalicoOptions, files: Sequence[str], folders: Sequence[str] = ()) -> list[str]:
    """The command. With a configuration file of its own, only Neutron's files are added to it."""
    own = ["--config", options.config] if options.config else []
    settings = {} if options.config else dict(_store(options))
    settings["inventory.database"] = "neutron"
    settings["inventory.neutron_config"] = ",".join([*files, *_inside(folders)])
    return [python, "-m", "holdfast.cli", "server", *own, *(f"--set={name}={text}" for name, text in settings.items())]


def _store(options: CalicoOptions) -> Iterator[tuple[str, str]]:
    yield "store.endpoints", ",".join(options.endpoints)
    for name, value in (
        ("store.region", options.region),
        ("store.ca_file", options.ca_file),
        ("store.cert_file", options.cert_file),
        ("store.key_file", options.key_file),
    ):
        if value:
            yield name, value


def _inside(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        yield from (str(path) for path in sorted(Path(folder).glob("*.conf")))
