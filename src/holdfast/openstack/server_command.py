"""The command line of `holdfast server` beside a Neutron. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class CalicoOptions(NamedTuple):
    """Section `[calico]` of neutron.conf; empty for what is not set."""

    endpoints: tuple[str, ...]
    region: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    user: str = ""
    password_file: str = ""
    config: str = ""


_TLS = ("etcd_ca_cert_file", "etcd_cert_file", "etcd_key_file")
"""With any of them networking-calico speaks TLS, and so does Holdfast."""


def calico_options(get: Callable[[str], Any]) -> CalicoOptions:
    """The options in section `[calico]`; `get` returns the value of an option, or None."""
    endpoints = get("endpoints") or ()
    if isinstance(endpoints, str):
        endpoints = [each.strip() for each in endpoints.split(",")]
    if not endpoints:
        scheme = "https" if any(map(get, _TLS)) else "http"
        endpoints = [f"{scheme}://{get('etcd_host') or 'localhost'}:{get('etcd_port') or 2379}"]
    return CalicoOptions(
        endpoints=tuple(endpoints),
        region=get("openstack_region") or "",
        ca_file=get("etcd_ca_cert_file") or "",
        cert_file=get("etcd_cert_file") or "",
        key_file=get("etcd_key_file") or "",
        user=get("etcd_username") or "",
        password_file=get("etcd_password_file") or "",
        config=get("holdfast_config") or "",
    )


def server_settings(options: CalicoOptions, files: Sequence[str], folders: Sequence[str] = ()) -> dict[str, str]:
    """Settings of Holdfast that follow from Neutron's. Beside a configuration file, only Neutron's files are named."""
    settings = {} if options.config else dict(_store(options))
    return settings | {
        "inventory.database": "neutron",
        "inventory.neutron_config": ",".join([*files, *_inside(folders)]),
    }


def server_command(python: str, options: CalicoOptions, files: Sequence[str], folders: Sequence[str] = ()) -> list[str]:
    """The command line of the server."""
    own = ["--config", options.config] if options.config else []
    settings = server_settings(options, files, folders)
    return [python, "-m", "holdfast.cli", "server", *own, *(f"--set={name}={text}" for name, text in settings.items())]


def _store(options: CalicoOptions) -> Iterator[tuple[str, str]]:
    yield "store.endpoints", ",".join(options.endpoints)
    for name, value in (
        ("store.region", options.region),
        ("store.ca_file", options.ca_file),
        ("store.cert_file", options.cert_file),
        ("store.key_file", options.key_file),
        ("store.user", options.user),
        ("store.password_file", options.password_file),
    ):
        if value:
            yield name, value


def _inside(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        yield from (str(path) for path in sorted(Path(folder).glob("*.conf")))
