"""Certificate of the API, which is replaced under the running daemon: every handshake uses the files as they are."""

from __future__ import annotations

import ssl

from holdfast.cli.common.api_files import server_context
from holdfast.config.sections.http import HttpSettings
from holdfast.runtime.followed_files import FollowedFiles


class ApiCertificate:
    """Raises `OSError` or `SecretRefused` where the files cannot be used at the start, and never later."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        files = (cert_file, key_file)
        self._followed = FollowedFiles(files, lambda: server_context(*files))

    def listening(self) -> ssl.SSLContext:
        """Return a context for the server, which hands every connection to that of the current files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = self._choose
        return context

    def look(self) -> None:
        """Look at the files, so that one that cannot be used is logged when it is written."""
        self._followed.current()

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _listening: ssl.SSLContext) -> None:
        connection.context = self._followed.current()


def certificate_of(http: HttpSettings) -> ApiCertificate | None:
    """Return the certificate; None without TLS. Raises what `ApiCertificate` raises."""
    if http.cert_file is None or http.key_file is None:
        assert not http.is_api_remote, "off loopback only with TLS"
        return None
    return ApiCertificate(http.cert_file, http.key_file)
