"""A fleet of any size for tests of the page: documents as the API has them, served by the real application."""

from __future__ import annotations

import array
import base64
import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.api.access import ApiAccess
from holdfast.api.app import create_app
from holdfast.api.documents import ChangedMeanwhile, DocumentError, IntentRequest
from holdfast.api.sessions import Sessions
from holdfast.api.stream.feed import EventFeed
from holdfast.api.tokens import TokenFile
from holdfast.cli.api.certificate import ApiCertificate
from holdfast.cli.api.http_server import http_server

AT = "2026-11-18T03:12:44Z"
NO_COMMANDS = {"inspect": "", "release": "", "fix": ""}


TABLE_SIZE = 16_381


def packed(owners: Iterable[int]) -> str:
    return base64.b64encode(array.array("H", owners).tobytes()).decode()


def worker(name: str, state: str = "ok", **fields: Any) -> dict[str, Any]:
    known = {"pid": 1, "phase": "running", "verdict": "healthy", "pulse_s": 0.2, "backlog": 0, "lag_s": 0.1}
    more = {"restarts": 0, "crash_looping": False, "warm": True, "trouble": "", "evidence": "", "trouble_ago_s": None}
    return {"name": name, "state": state, **known, **more, "back_after_s": None, "waiting_s": None, **fields}


def elector(name: str, phase: str, leader: str, term: int) -> dict[str, Any]:
    store = {"version": "3.5.16", "members": 3, "answering": 3, "revision": 9184467, "round_trip_ms": 2.0}
    return {
        "name": name,
        "phase": phase,
        "leader": leader,
        "term": term,
        "since_s": 219_600.0,
        "lease_s": 13.2,
        "ttl_s": 15.0,
        "followers": {},
        "fleet": "prod-ams",
        "store": {**store, "compacted_ago_s": 2460.0},
    }


def reported(**backends: str) -> dict[str, Any]:
    """Return the report of a balancer elsewhere: the state of each backend of the frontend web."""
    members = [
        {"name": name, "address": f"10.28.3.{name[-1]}:8443", "state": state, "configured": 100}
        | ({"weight": 100} if state == "up" else {"weight": 0, "why": "web: L4TOUT", "since": AT})
        for name, state in ((name.replace("_", "-"), state) for name, state in backends.items())
    ]
    up = sum(state == "up" for state in backends.values())
    pool = {"up": up, "total": len(members), "backends": members}
    frontend = {"vip": "192.0.2.80:443/tcp", "pools": [pool], "programmed": True, "active_pool": 0}
    return {"table": "b71e09aa", "frontends": {"web": "up" if up else "down"}, "details": {"web": frontend}}


class SampleDocuments:
    """`hosts` hosts, three servers, one frontend, and one closed gate. Tests change its fields."""

    def __init__(self, hosts: int = 40) -> None:
        self.names = [f"r{rack:03}-{number:02}" for rack in range(1, hosts // 20 + 2) for number in range(1, 21)][
            :hosts
        ]
        self.states = ["h"] * hosts
        self.reasons: dict[str, dict[str, str]] = {}
        self.leader = "ctl-1"
        self.term = 9180022
        self.backend_state = "up"
        self.warm_up = "over"
        self.is_panicking = False
        self.reports: dict[str, dict[str, Any]] = {}
        self.has_balancer = True
        self.electors_answer = True
        self.problems: list[dict[str, Any]] = []
        self.held: dict[str, list[dict[str, Any]]] = {}
        self.intents: list[dict[str, Any]] = []
        self.log = [self.decision("syncer", "create", "host/r001-01", "created by alice")]

    @staticmethod
    def decision(by: str, op: str, key: str, sentence: str, **fields: Any) -> dict[str, Any]:
        SampleDocuments.count += 1
        time_ = f"2026-11-18T03:12:{SampleDocuments.count % 60:02}.{SampleDocuments.count:06}Z"
        known = {"time": time_, "worker": by, "op": op, "key": key, "sentence": sentence}
        return {**known, "outcome": "applied", "kind": "", "gate": "", "reason": "", "count": 1, **fields}

    count = 0

    def close_gate(self) -> None:
        release = 'holdfast gate allow syncer/witness --once --reason "…"'
        reason = "the inventory has no record that anyone deleted them"
        inspect = "holdfast diff inventory --network red"
        held = {"op": "delete", "gate": "witness", "reason": reason, "opens": release, "since_s": 372.0}
        self.held = {f"{self.leader}/syncer": [{**held, "key": f"endpoint e{number}"} for number in range(15)]}
        self.problems = [
            {
                "subject": "syncer",
                "sentence": f"held by witness for 00:06:12: {reason}",
                "needs_action": True,
                "known": True,
                "commands": {"inspect": inspect, "release": release, "fix": ""},
                "since": AT,
            }
        ]

    def lose_host(self, index: int) -> None:
        name, commands = self.names[index], {**NO_COMMANDS, "inspect": f"holdfast explain host {self.names[index]}"}
        self.states[index] = "s"
        self.reasons = {**self.reasons, name: {"why": "lease expired; routes to its endpoints stay", "since": AT}}
        sentence = "agent silent; routes to its 14 endpoints stay, their status is unknown"
        known = {"subject": name, "sentence": sentence, "needs_action": True, "known": True}
        self.problems = [*self.problems, {**known, "commands": commands, "since": AT}]

    async def status(self) -> dict[str, Any]:
        return {"exit_code": 0, "problems": self.problems, "servers": [], "held": self.held, "intents": self.intents}

    async def summary(self) -> dict[str, Any]:
        servers = [
            elector(one, "leading" if one == self.leader else "following", self.leader, self.term)
            for one in ("ctl-1", "ctl-2", "ctl-3")
        ]
        names = ("elector", "syncer", "agent-status", "endpoint-status", "compaction", "api")
        syncer = "held: witness" if self.held else "ok"
        workers = [worker(name, syncer if name == "syncer" else "ok") for name in names]
        daemons = [
            {
                "role": one["name"],
                "version": "0.3.1",
                "supervisor_pid": 1,
                "supervisor_pulse_s": 0.2,
                "workers": workers,
            }
            for one in servers
        ]
        total = len(self.names)
        states = {"up": 3 * total, "down": 0, "error": 0, "unknown": 0}
        seen = {
            "agent-status": {"total": total},
            "endpoint-status": {"total": 3 * total, "states": states, "orphans": {}},
        }
        return {
            "exit_code": 1 if self.problems else 0,
            "problems": self.problems,
            "servers": servers if self.electors_answer else [],
            "daemons": daemons,
            "held": self.held,
            "intents": self.intents,
            "seen": seen,
            "at": f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}",
            "version": "0.3.1",
            "served_by": "ctl-2",
        }

    async def hosts(self) -> dict[str, Any]:
        letters = {"h": "at_head"}
        known = {"complete": True, "error": "", "names": self.names, "letters": letters}
        return {**known, "states": "".join(self.states), "reasons": dict(self.reasons)}

    async def fleet(self) -> dict[str, Any]:
        servers: list[dict[str, Any]] = [
            {"name": one, "role": "leader" if one == self.leader else "follower", "term": self.term, "version": "0.3.1"}
            | {"host": one, "able": True, "why_not": "", "lag_s": 0.0, "pauses": [], "unrenewed_s": 0.0}
            for one in ("ctl-1", "ctl-2", "ctl-3")
        ]
        counts = {"peers": 1, "programmed": 9 * len(self.names), "held": 0, "failed": 0}
        totals = {"hosts": len(self.names), "alive": len(self.names), "reports": len(self.names), "counts": counts}
        began = "2026-11-15T14:02:51Z"
        terms = [{"name": "ctl-3", "host": "c", "term": 9122417, "began": "2026-11-14T16:55:20Z", "ended": began}]
        terms[0]["why"] = "it could not prove its term in time"
        terms.append({"name": self.leader, "host": "a", "term": self.term, "began": began})
        return {
            "complete": True,
            "totals": {**totals, "pending_deletes": 0, "unreadable": 0},
            "terms": terms,
            "balancers": {},
            "intents": self.intents,
            "agent_gates": [],
            "servers": servers,
        }

    async def frontends(self) -> dict[str, Any]:
        def member(number: int) -> dict[str, Any]:
            state = self.backend_state if number == 3 else "up"
            programmed = 100 if state == "up" else 0
            known = {"backend": f"web-{number}", "address": f"10.28.3.{number}:8443", "state": state}
            return {**known, "configured": 100, "asked": None, "wanted": programmed, "programmed": programmed}

        def backend(number: int) -> dict[str, Any]:
            error = "web: L4TOUT" if self.backend_state == "down" and number == 3 else None
            check = {"target": f"t{number}", "verdict": "up", "against": 0, "pace": "normal", "error": error}
            known = {
                "name": f"web-{number}",
                "address": f"10.28.3.{number}:8443",
                "since_s": 52.0,
                "why": "web: L7OK, 200",
            }
            return {
                **known,
                "state": member(number)["state"],
                "checks": {"web": check},
                "frontends": ["web"],
                "intents": [],
            }

        up = [number for number in (1, 2, 3) if member(number)["programmed"]]
        frontend = {
            "name": "web",
            "vip": "192.0.2.80:443/tcp",
            "description": "",
            "state": "up",
            "panic": self.is_panicking,
            "paused": None,
            "announce": {"device": "lo", "announced": True, "why": None},
            "active_pool": 0,
            "programmed": True,
            "pools": [[member(1), member(2), member(3)]],
        }
        balancer = {
            "name": "lb-1",
            "warm_up": self.warm_up,
            "dataplane": "nftables",
            "frontends": [frontend],
            "digests": {"table": "b71e09aa", "configuration": "c", "health": "h", "intents": "i"},
            "backends": [backend(1), backend(2), backend(3)],
            "missing": {},
            "troubles": [],
            "traffic": {},
            "buckets": {"web": {f"10.28.3.{number}:8443": 16381 // len(up) for number in up}},
            "probes": {f"t{number}": [4.0 + (each * number) % 3 for each in range(100)] for number in (1, 2, 3)},
        }
        return {"here": [balancer] if self.has_balancer else [], "reports": self.reports}

    async def decisions(self, last: int) -> list[dict[str, Any]]:
        return self.log[-last:]

    async def history(self, key: str | None, last: int) -> list[dict[str, Any]]:
        return [one for one in self.log if key in (None, one["key"])][-last:]

    async def gates(self) -> list[dict[str, Any]]:
        return []

    async def plan(self, gate: str) -> dict[str, Any]:
        held = [one for objects in self.held.values() for one in objects]
        return {"gate": gate, "total": len(held), "seal": f"{len(held)}.seal", "objects": held}

    async def change(self, asked: IntentRequest) -> str:
        scope = {"target": asked.kind, "name": asked.name}
        intent = {"what": "pause", "scope": scope, "who": f"token {asked.who}", "why": asked.reason, "since": AT}
        self.intents = [intent] if asked.action == "pause" else []
        return f"{asked.kind} {asked.name} is {asked.action}d"

    async def release(self, gate: str, who: str, reason: str, seal: str) -> str:
        if seal != (await self.plan(gate))["seal"]:
            raise ChangedMeanwhile("others are held now")
        self.held, self.problems, self.released = {}, [], (gate, who, reason)
        return "15 held deletes go through once"

    released = ("", "", "")

    async def servers(self) -> list[dict[str, Any]]:
        return []

    async def explain(self, kind: str, name: str) -> dict[str, Any]:
        raise DocumentError(f"there is no {kind} {name!r}")

    async def table(self, frontend: str) -> dict[str, Any]:
        if frontend != "web":
            raise DocumentError(f"there is no frontend {frontend!r}")
        members = [{"address": f"10.28.3.{number}:8443", "backend": f"web-{number}"} for number in (1, 2, 3)]
        base = [bucket * 7919 % 3 for bucket in range(TABLE_SIZE)]
        is_down = self.backend_state == "down"
        now = [bucket % 2 if is_down and owner == 2 else owner for bucket, owner in enumerate(base)]
        known = {"frontend": frontend, "size": TABLE_SIZE, "members": members}
        return {**known, "table": packed(now), "base": packed(base)}

    async def metrics(self) -> str:
        return ""


@contextlib.contextmanager
def serving(
    documents: SampleDocuments,
    port: int = 0,
    tokens: TokenFile | None = None,
    certificate: ApiCertificate | None = None,
) -> Iterator[int]:
    """Serve the application in a thread, as if from elsewhere if there is a certificate; yield its port."""
    sessions = Sessions(tokens or TokenFile(Path("/nonexistent/tokens.json")))
    listening, feed = socket.create_server(("127.0.0.1", port)), EventFeed(documents)
    access = ApiAccess(is_remote=certificate is not None, has_tls=certificate is not None)
    server = http_server(create_app(documents, feed, sessions, access), certificate)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        feed.stop()
        server.should_exit = True
        thread.join(30)
        listening.close()
