"""Documents that the API serves; the command line implements them, so that both show the same."""

from __future__ import annotations

from typing import Any, Protocol


class Documents(Protocol):
    """Each method raises `DocumentError` where there is no document."""

    async def status(self) -> dict[str, Any]: ...

    async def servers(self) -> list[dict[str, Any]]: ...

    async def explain(self, kind: str, name: str) -> dict[str, Any]: ...

    async def history(self, key: str | None, last: int) -> list[dict[str, Any]]: ...

    async def metrics(self) -> str: ...


class DocumentError(Exception):
    """There is no document; the message is for the operator."""

    status = 404


class UnknownState(DocumentError):
    """The daemon that knows the answer does not answer."""

    status = 503
