"""Liveness of one watch stream: an idle stream and a dead one look alike.

Every interval it checks: has the stream delivered our own writes (C38)? A write that came back in time also proves the
member: it has applied what a majority has just accepted. Only where no own write is known, it asks: is the member still
the one we connected to, does it have a leader, has it reached the revision that the cluster had an interval ago? Two
such questions of each idle stream cost etcd more than everything that the stream delivers. One clear no ends the
stream; the watch then resumes on another member, which costs no more than a connection.
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
    """Periodic checks of one stream at one member."""

    gateway: Gateway
    url: str
    member: int
    stream: WatchStream
    own: OwnWriteCheck | None
    _unanswered: int = 0
    _revision_before: int = 0

    async def run(self) -> None:
        """Check until the stream is found dead; cancelled when the watch leaves the stream."""
        interval = self.own.own.interval if self.own is not None else CHECK_INTERVAL
        while True:
            self._revision_before = self.gateway.endpoints.floor.revision
            await asyncio.sleep(interval.total_seconds())
            objection = await self._find_objection()
            if objection is not None:
                self.stream.fail(objection)
                return

    async def _find_objection(self) -> str | None:
        missing = self._own_write_missing()
        if missing is not None or self._is_proven_by_writes():
            return missing
        objection = await self._check_member()
        if objection is None:
            await self._read_cluster_revision()
        return objection

    def _is_proven_by_writes(self) -> bool:
        return self.own is not None and not self.own.unwritten(self.gateway.now())

    def _own_write_missing(self) -> str | None:
        # A busy reader has not read what has arrived: nothing can be missing yet.
        if self.own is None or not self.stream.waiting:
            return None
        revision = self.own.missing(self.gateway.now())
        return f"the stream has not delivered our own write at revision {revision}" if revision else None

    async def _check_member(self) -> str | None:
        call = GatewayCall(wire.STATUS, b"{}", _STATUS, linear=False)
        timeout = self.gateway.connection.deadline.total_seconds()
        try:
            reply = await self.gateway.call_member(self.url, call, self.gateway.endpoints.floor, timeout)
        except (StoreAway, StoreError) as error:
            reply = Failed(str(error))
        if isinstance(reply, Failed):
            self._unanswered += 1
            return reply.why if self._unanswered >= SILENT_CHECKS else None
        self._unanswered = 0
        return self.objection(reply)

    def objection(self, reply: wire.StatusReply) -> str | None:
        """Return why the member that gave this status should not serve the stream."""
        if reply.header.member_id != self.member:
            return f"another member answers at {self.url} now"
        if reply.leader == 0:
            return f"{self.url} has no leader"
        revision = reply.header.revision
        if revision < self._revision_before:
            return f"{self.url} is behind: at revision {revision}, the cluster was at {self._revision_before}"
        return None

    async def _read_cluster_revision(self) -> None:
        """Read the cluster's revision and, if another process writes the own key, the write that the stream must
        deliver."""
        key = self.own.own.key if self.own is not None else b"\0"
        call = GatewayCall(wire.RANGE, wire.encode(wire.RangeRequest(key, keys_only=True)), _RANGE)
        try:
            reply = await self.gateway.call(call)
        except (StoreAway, StoreError):
            return  # only the check of the stream's own member ends the stream
        if self.own is not None and reply.kvs:
            self.own.exists(reply.kvs[0].mod_revision, self.gateway.now())
