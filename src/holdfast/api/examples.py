"""Examples of what the API answers, for its OpenAPI document. Tests compare their fields with real answers."""

from __future__ import annotations

from typing import Any

_RELEASE = 'holdfast gate allow syncer/witness --once --reason "…"'
_WHY = "the inventory has no record that anyone deleted them"
_COMMANDS = {"inspect": "holdfast diff inventory --network red", "release": _RELEASE, "fix": ""}
_ELECTOR: dict[str, Any] = {
    "name": "ctl-1",
    "phase": "leading",
    "leader": "ctl-1",
    "term": 9_180_022,
    "since_s": 219_600.0,
    "lease_s": 13.2,
    "ttl_s": 15.0,
}
_CLOSED = {"op": "delete", "key": "endpoint e1", "gate": "witness", "reason": _WHY, "opens": _RELEASE, "since_s": 372.0}
_PAUSE = {
    "what": "pause",
    "scope": {"target": "host", "name": "r12-07"},
    "who": "token alice",
    "why": "new NIC",
    "since": "2026-11-18T03:12:44Z",
    "until": "2026-11-18T03:42:44Z",
}

STATUS: dict[str, Any] = {
    "exit_code": 1,
    "problems": [
        {
            "subject": "syncer",
            "sentence": f"held by witness for 00:06:12: {_WHY}",
            "needs_action": True,
            "known": True,
            "commands": _COMMANDS,
        }
    ],
    "daemons": [
        {
            "role": "server",
            "version": "0.3.1",
            "supervisor_pid": 811,
            "supervisor_pulse_s": 0.2,
            "workers": [{"name": "syncer", "pid": 814, "phase": "running", "state": "held: witness", "backlog": 15}],
            "config_refused": "",
        }
    ],
    "held": {"server/syncer": [_CLOSED]},
    "servers": [_ELECTOR],
    "agents": [],
    "balancers": {},
    "verdict": None,
    "seen": {"endpoint-status": {"total": 5_204, "states": {"up": 5_190, "unknown": 14}, "orphans": {}}},
    "vips": {"lb-1": {"name": "lb-1", "version": "0.3.1", "frontends": {"www": "up"}, "table": "b71e09"}},
    "intents": [_PAUSE],
    "terms": [],
    "unreached": "",
    "deletes": {},
}
SERVERS: list[dict[str, Any]] = [
    {
        "name": "ctl-1",
        "host": "ctl-1.example.net",
        "version": "0.3.1",
        "role": "leader",
        "term": 9_180_022,
        "able": True,
        "why_not": "",
        "lag_s": 0.0,
        "pauses": [],
        "unrenewed_s": 0.4,
    }
]
EXPLAINED: dict[str, Any] = {
    "kind": "host",
    "name": "r12-07",
    "fleet": {"addresses": ["192.0.2.147"], "endpoints": 14, "alive": False, "reported": "2026-11-18T03:06:43Z"},
    "decisions": [],
}
DECISIONS: list[dict[str, Any]] = [
    {
        "time": "2026-11-18T03:07:42.114Z",
        "worker": "syncer",
        "op": "delete",
        "key": "host/r12-01",
        "outcome": "applied",
        "sentence": "deleted by alice: “decommission r12”",
        "revision": 9_184_021,
        "term": 9_180_022,
    }
]
HOSTS: dict[str, Any] = {
    "complete": True,
    "error": "",
    "names": ["r12-06", "r12-07"],
    "states": "hs",
    "reasons": {"r12-07": {"why": "lease expired; routes to its endpoints stay", "since": "2026-11-18T03:06:43Z"}},
    "letters": {"h": "at_head", "b": "behind", "g": "gate_closed", "s": "silent"},
}
FLEET: dict[str, Any] = {
    "complete": True,
    "totals": {
        "hosts": 412,
        "alive": 411,
        "reports": 411,
        "counts": {"programmed": 5_204, "held": 0, "failed": 0},
        "pending_deletes": 0,
        "unreadable": 0,
    },
    "terms": [
        {"name": "ctl-1", "host": "ctl-1.example.net", "term": 9_180_022, "began": "2026-11-15T14:02:51Z", "why": ""}
    ],
    "balancers": {"lb-1": {"version": "0.3.1", "table": "b71e09", "frontends": {"web": "up"}}},
    "intents": [_PAUSE],
    "drains": [],
    "agent_gates": [],
    "servers": SERVERS,
}
_REPORTED_BACKEND = {
    "name": "web-1",
    "address": "10.28.3.1:8443",
    "state": "down",
    "configured": 100,
    "weight": 0,
    "why": "web: L4TOUT",
    "since": "2026-11-18T03:11:52Z",
}
FRONTENDS: dict[str, Any] = {
    "here": [
        {
            "name": "lb-1",
            "reports_as": "lb-1",
            "warm_up": "over",
            "dataplane": "nftables",
            "frontends": [
                {"name": "web", "vip": "192.0.2.80:443/tcp", "state": "up", "panic": False, "active_pool": 0}
            ],
            "digests": {"table": "b71e09"},
            "traffic": {"web": {"web-1": 920.5}},
            "buckets": {"web": {"10.28.3.1:8443": 16_381}},
            "probes": {"web-1/https": [4.1, 4.3, None]},
        }
    ],
    "reports": {
        "lb-2": {
            "version": "0.3.1",
            "table": "b71e09",
            "frontends": {"web": "up"},
            "details": {
                "web": {
                    "vip": "192.0.2.80:443/tcp",
                    "pools": [{"up": 0, "total": 1, "backends": [_REPORTED_BACKEND]}],
                    "active_pool": 0,
                    "programmed": True,
                }
            },
        }
    },
}
TABLE: dict[str, Any] = {
    "frontend": "web",
    "size": 3,
    "members": [{"address": "10.28.3.1:8443", "backend": "web-1"}],
    "table": "AAAAAAAA",
    "base": "AAAAAAAA",
    "balancer": "lb-1",
}
GATES: list[dict[str, Any]] = [
    {
        "worker": "server/syncer",
        "gate": "witness",
        "reason": _WHY,
        "opens": _RELEASE,
        "held": {"delete": 15},
        "since_s": 372.0,
    }
]
PLAN: dict[str, Any] = {"gate": "syncer/witness", "total": 1, "seal": "1.5f2c", "objects": [_CLOSED]}
CALLER: dict[str, Any] = {"name": "alice", "role": "admin"}
SIGNED_IN = {**CALLER, "proof": "4R0x…"}
ANSWER = {"answer": "host r12-07 is paused until 03:42:44"}
SIGN_IN = {"token": "holdfast_…"}
INTENT = {"action": "pause", "kind": "host", "name": "r12-07", "reason": "new NIC", "lasting": "30m"}
ALLOW = {"gate": "syncer/witness", "reason": "looked at it with bob"}
STREAMED = 'id: 5f2c01aa-7\nevent: cells\ndata: [[7,"s",{"why":"lease expired"}]]\n\n'
