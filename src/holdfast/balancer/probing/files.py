"""Files that health checks name: authorities, client certificates, and header values that are secret.

A file that was replaced takes effect with the next probe. One that cannot be used any more (half-written, or a
certificate whose key has not been replaced yet) leaves the last good content in use, and is logged once.
"""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast.balancer.probing.checks import UncheckableTarget
from holdfast.balancer.probing.messages import TargetSpec
from holdfast.config import ConfigProblem, ConfigRejected, Loaded, Origin
from holdfast.config.schema.scalars import CREDENTIAL
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.runtime.config_file import SecretRefused, file_path, read_secret
from holdfast.runtime.followed_files import FollowedFiles, present, why


def tls_context(
    ca_file: str | None, cert_file: str | None = None, key_file: str | None = None, *, verify: bool = True
) -> ssl.SSLContext:
    """Load the authorities and the client certificate. Raises `OSError` or `SecretRefused`."""
    if cert_file and key_file:  # fails, if it must, before the authorities are loaded: tens of milliseconds
        present(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), cert_file, key_file)
    context = ssl.create_default_context(cafile=file_path(ca_file, os.environ) if ca_file else None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if cert_file and key_file:
        present(context, cert_file, key_file)
    return context


def header_value(name: str, file: str) -> str:
    """Read the value of a header from its file. Raises `SecretRefused`, with a sentence that does not repeat it."""
    value = read_secret(file, os.environ)
    if not (value.isascii() and value.isprintable() and value == value.strip()):
        raise SecretRefused(f"{file} cannot be sent as header {name}: write one line of printable ASCII into it")
    return value


class ProbeFiles:
    """Files of all checks, shared by their targets: loading the authorities of a machine takes tens of milliseconds."""

    def tls(self, target: TargetSpec) -> Callable[[], ssl.SSLContext]:
        check = target.check
        try:
            return _tls_files(check.ca_file, check.cert_file, check.key_file, check.verify).current
        except (OSError, SecretRefused) as error:
            named = {"ca-file": check.ca_file, "cert-file": check.cert_file, "key-file": check.key_file}
            files = " or ".join(f"{field} {file}" for field, file in named.items() if file)
            raise UncheckableTarget(f"{target.id}: {files} cannot be used: {why(error)}") from error

    def headers(self, target: TargetSpec) -> Callable[[], Mapping[str, str]]:
        try:
            return _header_files(target.check.secret_headers).current
        except SecretRefused as refused:
            raise UncheckableTarget(f"{target.id}: header-files: {refused}") from refused


PROBE_FILES = ProbeFiles()


@functools.lru_cache(maxsize=64)
def _tls_files(
    ca_file: str | None, cert_file: str | None, key_file: str | None, verify: bool
) -> FollowedFiles[ssl.SSLContext]:
    files = [file for file in (ca_file, cert_file, key_file) if file]
    return FollowedFiles(files, lambda: tls_context(ca_file, cert_file, key_file, verify=verify))


@functools.lru_cache(maxsize=64)
def _header_files(headers: tuple[tuple[str, str], ...]) -> FollowedFiles[Mapping[str, str]]:
    return FollowedFiles([file for _, file in headers], lambda: {name: header_value(name, at) for name, at in headers})


def unusable(loaded: Loaded) -> ConfigRejected | None:
    """Refuse a configuration whose health checks name files that this process cannot use."""
    problems = [
        ConfigProblem(_origin(loaded.origins, path, field), f"{path}.{field}", sentence)
        for name, check in loaded.config.balancer.healthchecks.items()
        for path in [f"balancer.healthchecks.{name}"]
        for field, sentence in _problems(check)
    ]
    return ConfigRejected(tuple(sorted(problems))) if problems else None


def _origin(origins: Mapping[str, Origin], path: str, field: str) -> Origin:
    return origins.get(f"{path}.{field}") or origins.get(path) or Origin()


def _problems(check: HealthCheck) -> Iterator[tuple[str, str]]:
    def wrong(files: Sequence[str | None], load: Callable[[], object]) -> str | None:
        # A credential exists only in the daemon; elsewhere it cannot be judged.
        if any((file or "").startswith(CREDENTIAL) for file in files) and "CREDENTIALS_DIRECTORY" not in os.environ:
            return None
        try:
            load()
        except (OSError, SecretRefused) as error:
            return f"cannot be used: {why(error)}"
        return None

    if check.ca_file and (sentence := wrong([check.ca_file], lambda: tls_context(check.ca_file))):
        yield "ca_file", sentence
    if check.cert_file:
        pair = [check.cert_file, check.key_file]
        if sentence := wrong(pair, lambda: tls_context(None, check.cert_file, check.key_file)):
            yield "cert_file", sentence
    for name, file in check.secret_headers:
        if sentence := wrong([file], lambda name=name, file=file: header_value(name, file)):  # type: ignore[misc]
            yield "header_files", sentence
