"""A store that anybody on the network can change is wrong, not ok."""

from __future__ import annotations

import pytest

from holdfast.cli.doctor import Severity, access
from holdfast.config.sections.store import StoreSettings

REMOTE = "https://etcd-1.example:2379"


@pytest.mark.parametrize(
    ("settings", "severities"),
    [
        ({"endpoints": ("http://127.0.0.1:2379", "http://[::1]:2379")}, [Severity.GOOD]),
        ({"endpoints": (REMOTE,), "user": "agent"}, [Severity.GOOD]),
        ({"endpoints": (REMOTE,), "cert_file": "/c.pem", "key_file": "/k.pem"}, [Severity.GOOD]),
        ({"endpoints": (REMOTE,)}, [Severity.WRONG]),
        ({"endpoints": ("http://10.0.0.1:2379",), "user": "agent"}, [Severity.WRONG]),
        ({"endpoints": ("http://10.0.0.1:2379",)}, [Severity.WRONG, Severity.WRONG]),
        ({"endpoints": ("http://localhost:2379", "http://10.0.0.1:2379")}, [Severity.WRONG, Severity.WRONG]),
    ],
)
def test_a_store_off_loopback_needs_tls_and_a_user_or_a_certificate(
    settings: dict[str, object], severities: list[Severity]
) -> None:
    found = list(access.examine(StoreSettings(**settings)))  # type: ignore[arg-type]
    assert [one.severity for one in found] == severities
    assert {one.subject for one in found} == {"access"}
