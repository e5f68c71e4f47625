"""Documents that the API serves; the command line implements them, so that both show the same."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class IntentRequest(NamedTuple):
    """A pause or a drain, or the end of one, as the holder of the token `who` asked for it."""

    who: str
    action: str
    kind: str
    name: str
    reason: str
    lasting: str


class Documents(Protocol):
    """Each method raises `DocumentError` where there is no document."""

    async def status(self) -> dict[str, Any]: ...

    async def summary(self) -> dict[str, Any]:
        """The status, with the age of every problem and with who serves it."""

    async def servers(self) -> list[dict[str, Any]]: ...

    async def explain(self, kind: str, name: str) -> dict[str, Any]: ...

    async def history(self, key: str | None, last: int) -> list[dict[str, Any]]: ...

    async def decisions(self, last: int) -> list[dict[str, Any]]:
        """The last decisions of the daemons here, which costs less than `history`."""

    async def metrics(self) -> str: ...

    async def hosts(self) -> dict[str, Any]: ...

    async def fleet(self) -> dict[str, Any]:
        """Servers, terms, balancers, intents and closed gates of agents, from the store."""

    async def frontends(self) -> dict[str, Any]: ...

    async def table(self, frontend: str) -> dict[str, Any]: ...

    async def gates(self) -> list[dict[str, Any]]: ...

    async def plan(self, gate: str) -> dict[str, Any]:
        """Changes that a gate holds; `seal` stands for exactly these."""

    async def change(self, asked: IntentRequest) -> str: ...

    async def release(self, gate: str, who: str, reason: str, seal: str) -> str: ...


class DocumentError(Exception):
    """There is no document; the message is for the operator."""

    status = 404


class RefusedChange(DocumentError):
    """The daemon declines a change; the message is its reason."""

    status = 409


class ChangedMeanwhile(DocumentError):
    """Another plan is held than the caller has seen."""

    status = 412


class UnknownState(DocumentError):
    """The daemon that knows the answer does not answer."""

    status = 503
