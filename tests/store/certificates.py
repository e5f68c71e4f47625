"""Certificates for tests: a CA of our own, and leaves with or without a Common Name, for one usage or for both."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    cert: Path
    key: Path


class Authority:
    """A CA whose files live in `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key())
        cert = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = folder / f"{name}.pem"
        self.pem.write_bytes(cert.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        usages: Sequence[ObjectIdentifier],
        *,
        common_name: bool = False,
        valid_for: datetime.timedelta = DAY,
        host: str = "",
    ) -> Pair:
        """A leaf for 127.0.0.1, and for `host`, in files called `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        oid = NameOID.COMMON_NAME if common_name else NameOID.ORGANIZATION_NAME
        builder = self._builder(x509.Name([x509.NameAttribute(oid, name)]), key.public_key(), valid_for)
        names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        names += [x509.DNSName(host)] if host else []
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, valid_for: datetime.timedelta = DAY
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + valid_for)
        )
