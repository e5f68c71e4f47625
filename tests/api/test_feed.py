"""Readers of the event stream and of the store: none of them ends silently."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.api.access import ON_LOOPBACK
from holdfast.api.app import create_app
from holdfast.api.documents import UnknownState
from holdfast.api.sessions import Sessions
from holdfast.api.stream import feed as stream_feed
from holdfast.api.stream.feed import EventFeed
from holdfast.api.tokens import TokenFile
from holdfast.cli.api import documents as command_documents
from holdfast.cli.api import worker as api_worker
from holdfast.cli.api.documents import CommandDocuments
from holdfast.cli.api.http_server import http_server
from holdfast.config.root import Config
from holdfast.model.base.region import Region
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import RolePaths
from holdfast.testing.store.fake import FakeStore
from tests.api.sample import SampleDocuments


class Failing(SampleDocuments):
    error: Exception | None = None

    async def fleet(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return await super().fleet()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [(UnknownState("the store is unreachable"), "the store is unreachable"), (RuntimeError("x"), "this is a bug")],
)
def test_a_document_that_cannot_be_read_is_in_trouble_until_it_can(error: Exception, sentence: str) -> None:
    async def troubles() -> list[dict[str, str]]:
        documents, found = Failing(), []
        documents.error = error
        async with asyncio.timeout(30), contextlib.aclosing(EventFeed(documents).messages(None)) as messages:
            async for message in messages:
                lines = dict(line.split(": ", 1) for line in message.decode().splitlines() if ": " in line)
                if lines.get("event") != "trouble":
                    continue
                found.append(json.loads(lines["data"]))
                if found[-1]:
                    documents.error = None
                elif any(found):
                    return found
        return found

    found = asyncio.run(troubles())
    assert sentence in next(one for one in found if one)["fleet"]
    assert found[-1] == {}


async def first(feed: EventFeed, event: str) -> Any:
    async with asyncio.timeout(60), contextlib.aclosing(feed.messages(None)) as messages:
        async for message in messages:
            lines = dict(line.split(": ", 1) for line in message.decode().splitlines() if ": " in line)
            if lines.get("event") == event:
                return json.loads(lines["data"])
    raise AssertionError("the stream ended")


async def ended(feed: EventFeed) -> None:
    """Wait until nobody reads any more."""
    if feed._reading is not None:
        await asyncio.wait({feed._reading}, timeout=60)
    assert feed._reading is None


def test_a_page_opened_later_never_sees_what_was_read_for_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_feed, "_LINGER_S", 0.5)

    async def seen() -> None:
        documents = SampleDocuments()
        feed = EventFeed(documents)
        assert (await first(feed, "status"))["servers"][0]["leader"] == "ctl-1"
        assert (await first(feed, "hosts"))["states"].count("s") == 0
        await ended(feed)
        documents.leader = "ctl-3"
        documents.lose_host(4)
        assert (await first(feed, "status"))["servers"][0]["leader"] == "ctl-3"
        await ended(feed)
        documents.lose_host(5)
        assert (await first(feed, "hosts"))["states"].count("s") == 2

    asyncio.run(seen())


def test_the_fleet_is_unknown_while_the_store_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_runtime: Path) -> SimpleNamespace:
        return SimpleNamespace()

    async def read() -> dict[str, Any]:
        client = FakeStore().client()
        documents = CommandDocuments(RolePaths("server", tmp_path, tmp_path), client, Region("r1"))
        assert (await documents.fleet())["servers"] == []
        client.link.sever()
        return await documents.fleet()

    monkeypatch.setattr(command_documents, "read_status", nothing)
    monkeypatch.setattr(command_documents, "document", lambda _status: {"intents": []})
    with pytest.raises(UnknownState, match="store is unreachable"):
        asyncio.run(read())


def test_the_worker_ends_with_the_view_of_the_fleet(tmp_path: Path) -> None:
    async def failing() -> None:
        raise RuntimeError("the view is broken")

    async def serve() -> None:
        paths = RolePaths("server", tmp_path, tmp_path)
        board, documents = Board.create(paths.board, ["api"]), SampleDocuments()
        worker = Worker(Spec("api", ""), "server", paths, Config(), SystemClock(), board)
        following = asyncio.create_task(failing())
        feed, sessions = EventFeed(documents), Sessions(TokenFile(tmp_path / "tokens.json"))
        server = http_server(create_app(documents, feed, sessions, ON_LOOPBACK), None)
        async with asyncio.timeout(30):
            await api_worker._serve(worker, socket.create_server(("127.0.0.1", 0)), None, server, feed, following)

    with pytest.raises(RuntimeError, match="the view is broken"):
        asyncio.run(serve())
