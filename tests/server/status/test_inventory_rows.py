"""Changed rows of the inventory: read from far enough back that none is missed."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.config.sections.status import StatusSettings
from holdfast.inventory.api import ChangedKeys
from holdfast.model.base.time import NEVER, Duration, seconds
from holdfast.server.status.inventory_rows import EndpointRows
from holdfast.server.status.rules.endpoints import EndpointRules
from tests.inventory.harness import REGION


class Numbered:
    """An inventory whose newest change has a number."""

    def __init__(self) -> None:
        self.number = 5_000
        self.asked: list[int] = []

    def newest(self) -> int:
        return self.number

    def wanted(self, *_asked: object) -> list[bytes]:
        return []

    def changed_since(self, _kind: str, after: int) -> ChangedKeys:
        self.asked.append(after)
        return ChangedKeys(self.number)


async def at_once(call: Any) -> Any:
    return call()


def test_a_row_that_commits_late_is_found_a_thousand_revisions_back() -> None:
    inventory = Numbered()
    rows = EndpointRows(EndpointRules(REGION), inventory, at_once)  # type: ignore[arg-type]

    async def scenario() -> None:
        await rows.reload()
        for now in (10, 11, 16):  # nothing new: asked all the same, every five seconds
            await rows.follow(NEVER + seconds(now))
        inventory.number = 5_001
        await rows.follow(NEVER + seconds(17))

    asyncio.run(scenario())
    assert inventory.asked == [4_000, 4_000, 4_000]


def test_the_default_audit_is_every_five_minutes() -> None:
    assert StatusSettings().audit_every == Duration(minutes=5)
