"""Files that the API needs to start: its certificate and key, and tokens where other machines can reach it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from holdfast.api.tokens import FILE, TokenFile, TokensUnreadable
from holdfast.config import ConfigProblem, ConfigRejected, Loaded, Origin
from holdfast.config.schema.scalars import CREDENTIAL
from holdfast.config.sections.http import HttpSettings
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.followed_files import present, why


def server_context(cert_file: str, key_file: str) -> ssl.SSLContext:
    """Load the certificate of the API, for TLS 1.2 or newer. Raises `OSError` or `SecretRefused`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    present(context, cert_file, key_file)
    return context


def api_unusable(loaded: Loaded) -> ConfigRejected | None:
    """Refuse a configuration whose API cannot be served by this process."""
    problems = [
        ConfigProblem(loaded.origins.get(path) or Origin(), path, sentence) for path, sentence in _problems(loaded)
    ]
    return ConfigRejected(tuple(problems)) if problems else None


def _problems(loaded: Loaded) -> Iterator[tuple[str, str]]:
    http = loaded.config.http
    if http.api_listens_on() is None:
        return
    if sentence := _certificate_problem(http):
        yield "http.cert_file", sentence
    if http.is_api_remote and (sentence := _token_problem(Path(loaded.config.paths.state))):
        yield "http.api", sentence


def _certificate_problem(http: HttpSettings) -> str:
    if http.cert_file is None or http.key_file is None:
        return ""
    # A credential exists only in the daemon; elsewhere it cannot be judged.
    is_credential = http.cert_file.startswith(CREDENTIAL) or http.key_file.startswith(CREDENTIAL)
    if is_credential and "CREDENTIALS_DIRECTORY" not in os.environ:
        return ""
    try:
        server_context(http.cert_file, http.key_file)
    except (OSError, SecretRefused) as error:
        return f"and http.key_file cannot be used: {why(error)}"
    return ""


def _token_problem(state: Path) -> str:
    try:
        found = TokenFile(state / FILE).all()
    except TokensUnreadable as error:
        return f"needs a token, because other machines can reach it, and {error}"
    if found:
        return ""
    return (
        "needs a token, because other machines can reach it, and there is none: "
        f"run holdfast token create NAME --role read --state {state}"
    )
