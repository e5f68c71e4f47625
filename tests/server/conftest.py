"""What tests of the server share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.webhook_server import Hook


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()
