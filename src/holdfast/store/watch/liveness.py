"""Watching over one watch stream, which by itself cannot tell silence from death.

Every interval it asks: have our own writes come back on the stream (C38)? Is the member still the one we connected
to, does it know a leader, has it come up to where the cluster stood an interval ago? One clear no ends the stream;
the watch then resumes on another member, which costs nothing but a connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from holdfast.model.base.time import Duration
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.transport import wire
from holdfast.store.transport.failures import Failed
from holdfast.store.transport.gateway import Gateway, GatewayCall
from holdfast.store.watch.own_writes import OwnWriteCheck
from holdfast.store.watch.stream import WatchStream

CHECK_INTERVAL = Duration(seconds=10)
SILENT_CHECKS = 2

_STATUS = wire.decoder(wire.StatusReply)
_RANGE = wire.decoder(wire.RangeReply)


@dataclass(slots=True)
class StreamCheck:
    """The checks of one stream at one member."""

    gateway: Gateway
    url: str
    member: int
    stream: WatchStream
    echo: OwnWriteCheck | None
    _unanswered: int = 0
    _stood: int = 0

    async def keep(self) -> None:
        """Runs until the stream is found dead, or is left and the task cancelled."""
        interval = self.echo.own.interval if self.echo is not None else CHECK_INTERVAL
        while True:
            self._stood = self.gateway.endpoints.floor.revision
            await asyncio.sleep(interval.total_seconds())
            objection = self._own_write_missing() or await self._member_unfit()
            if objection is not None:
                self.stream.fail(objection)
                return
            await self._look_around()

    def _own_write_missing(self) -> str | None:
        # A reader that is busy has not looked at what has arrived: nothing can be missing yet.
        if self.echo is None or not self.stream.waiting:
            return None
        revision = self.echo.missing(self.gateway.now())
        return f"our own write at revision {revision} has not come back on the stream" if revision else None

    async def _member_unfit(self) -> str | None:
        question = GatewayCall(wire.STATUS, b"{}", _STATUS, linear=False)
        timeout = self.gateway.connection.deadline.total_seconds()
        try:
            reply = await self.gateway.ask(self.url, question, self.gateway.endpoints.floor, timeout)
        except (StoreAway, StoreError) as error:
            reply = Failed(str(error))
        if isinstance(reply, Failed):
            self._unanswered += 1
            return reply.why if self._unanswered >= SILENT_CHECKS else None
        self._unanswered = 0
        return self._judge(reply)

    def _judge(self, reply: wire.StatusReply) -> str | None:
        if reply.header.member_id != self.member:
            return f"another member answers at {self.url} now"
        if reply.leader == 0:
            return f"{self.url} knows no leader"
        if reply.header.revision < self._stood:
            return f"{self.url} is behind: at revision {reply.header.revision}, the cluster was at {self._stood}"
        return None

    async def _look_around(self) -> None:
        """Learns where the cluster stands and, where another process writes the own key, what the stream must show."""
        if self.echo is not None and not self.echo.unwritten(self.gateway.now()):
            return
        key = self.echo.own.key if self.echo is not None else b"\0"
        question = GatewayCall(wire.RANGE, wire.encode(wire.RangeRequest(key, keys_only=True)), _RANGE)
        try:
            reply = await self.gateway.call(question)
        except (StoreAway, StoreError):
            return  # the check of the member itself decides; this was a look at the others
        if self.echo is not None and reply.kvs:
            self.echo.exists(reply.kvs[0].mod_revision, self.gateway.now())
