"""Gate table of docs/concepts.md, generated from the sources.

Every `Closed(GATE, REASON, …)` in `src/holdfast` names a gate and a member of a `Reason` enum. The reasons of the table
come from there; `GATES` says once per gate which places use it, what it holds and what releases a change.
`python -m docs.gate_table` prints the table.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import holdfast
from holdfast.reconcile import Reason

SOURCES = Path(holdfast.__file__).parent


class GateText(NamedTuple):
    """Row of one gate in the table, without its reasons."""

    used: str
    holds: str
    release: str


GATES: Mapping[str, GateText] = {
    "leader": GateText(
        "syncer, agent-status, endpoint-status, webhook",
        "every write of a server that does not lead with a fresh term; the write itself is fenced as well",
        "this server wins an election, or reaches the store again; `holdfast resume server NAME` after a pause",
    ),
    "identity": GateText(
        "syncer, agent-status, endpoint-status, agent",
        "everything while the identity is unknown, store and inventory belong to different fleets, or a store with "
        "objects has no identity; deletes while the store is being refilled, or was restored from a backup; all but "
        "later edits while the inventory was restored from a backup; on an agent then also replaces by an older claim",
        "configure the right store or inventory; `holdfast store adopt` or `holdfast inventory adopt` after a restore, "
        "`holdfast agent adopt` for one host; `holdfast inventory assign` for another database",
    ),
    "sync": GateText(
        "syncer, agent, VIPs, announcer",
        "deletes of a source that has not delivered one complete list, or has an unreadable value",
        "the complete list, or the fix of the value; `holdfast source forget` for a source that will not come back",
    ),
    "witness": GateText(
        "syncer",
        "a delete that no recorded change of the inventory asked for: objects of another controller, rows that raw SQL "
        "deleted, a restored database",
        "`holdfast gate allow syncer/witness --once` deletes exactly what is shown, `holdfast import` brings it into "
        "the inventory, `holdfast ignore KEY` leaves it alone for good",
    ),
    "brake": GateText(
        "syncer, agent, VIPs",
        "deletes of a kind, when too many come within a minute",
        "a fresh list at least a minute later that agrees, below 30 %; above that `holdfast gate allow PLACE/brake`",
    ),
    "mass_loss": GateText(
        "agent-status, endpoint-status",
        "the loss of many agents at once",
        "fresh reports of other agents 30 s later, or `holdfast gate allow PLACE/mass_loss --once`",
    ),
    "intent": GateText(
        "every place",
        "everything that an operator paused; the syncer's writes until it has read the intents after an outage of etcd",
        "`holdfast resume`, or the end of the pause; the next read",
    ),
    "precedence": GateText(
        "agent",
        "a change of an object that a source of higher precedence owned, until that source is complete",
        "the complete list of that source, or `holdfast source forget`",
    ),
    "prefix": GateText(
        "agent",
        "a route that would cut hosts off: default, loopback, link-local or multicast, or covering an address of the "
        "store or of a host, or outside the fleet's networks",
        "another address for the endpoint, a network that has it, or `agent.allowed_prefixes`",
    ),
    "handover": GateText(
        "agent",
        "deletes of the routes of other hosts with `routing: bgp`, until the main table has a route for that prefix",
        "BIRD or FRR installs its route; `ip route del` where nobody has the prefix any more",
    ),
    "handler_ready": GateText(
        "agent",
        "every change while a dataplane handler is not ready",
        "the handler reports ready",
    ),
    "interface": GateText(
        "agent",
        "a route to a workload, or a direct nexthop, whose interface does not exist, is down or has no carrier; what "
        "needs a tunnel device while a foreign device has its name; the setup and the guard of a workload's interface "
        "that this host needs itself",
        "the interface comes up, the foreign device goes, or the endpoint gets another `interfaceName`",
    ),
    "dependents": GateText(
        "agent",
        "a delete while other kernel objects depend on the object; an object that depends on a missing one",
        "the dependents are deleted, or the missing object is created",
    ),
    "path": GateText(
        "agent",
        "the delete of what carries the traffic to the store",
        "it stays unwanted for the hold-down time",
    ),
    "warm_up": GateText(
        "VIPs, announcer",
        "every change for a moment after a start, then each frontend with a backend that has not been probed",
        "the first probe result of each backend, or the end of the longest warm-up",
    ),
    "no_health": GateText(
        "VIPs, announcer",
        "changes of a frontend none of whose backends has a probe result",
        "the first probe result",
    ),
    "no_prober": GateText(
        "VIPs, announcer",
        "all but deletes, operator requests and repairs, while the prober does not report",
        "the next report of the prober",
    ),
    "announced": GateText(
        "VIPs",
        "the delete of a VIP whose address is still announced",
        "the announcer withdraws the address",
    ),
    "vip_programmed": GateText(
        "announcer",
        "the announcement of an address whose VIP is not programmed; its withdrawal while the VIP must stay",
        "the dataplane holds the VIP, or may delete it",
    ),
    "withdraw_delay": GateText(
        "announcer",
        "the withdrawal of an address before its withdraw delay is over",
        "the end of the delay, or the return of its backends",
    ),
    "backoff": GateText(
        "every place",
        "a change whose last attempt failed",
        "its next attempt: after 100 ms, doubling to 60 s; in the agent also a kernel event that may have removed the "
        "cause",
    ),
}
"""In the order of the table."""


def reasons() -> dict[str, list[Reason]]:
    """Finds the reasons of every gate, in the order of the sources."""
    found: dict[str, list[Reason]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Closed(" in text:
            for gate, members in _closings(ast.parse(text), _module(path)):
                known = found.setdefault(gate, [])
                known += [member for member in members if member not in known]
    return found


def _module(path: Path) -> ModuleType:
    name = ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts)
    return importlib.import_module(name.removesuffix(".__init__"))


def _closings(tree: ast.Module, module: ModuleType) -> Iterator[tuple[str, list[Reason]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Closed":
            gate, reason = node.args[:2]
            label = gate.value if isinstance(gate, ast.Constant) else getattr(module, ast.unparse(gate))
            yield str(label), _members(reason, module)


def _members(reason: ast.expr, module: ModuleType) -> list[Reason]:
    """Returns the member that the expression names, or for a variable all members of the enums of that module."""
    if isinstance(reason, ast.Attribute) and isinstance(reason.value, ast.Name):
        kind = getattr(module, reason.value.id, None)
        if isinstance(kind, type) and issubclass(kind, Reason):
            return [kind[reason.attr]]
    own = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Reason)]
    return [member for kind in own if kind.__module__ == module.__name__ for member in kind]


def table() -> str:
    """Returns the table in Markdown. Raises KeyError for a gate that has no text."""
    found = reasons()
    lines = ["| gate | used by | holds | reasons | to release |", "|---|---|---|---|---|"]
    for gate in sorted(found, key=list(GATES).index):
        text = GATES[gate]
        sentences = "; ".join(f"*{sentence}*" for sentence in dict.fromkeys(one.value for one in found[gate]))
        lines.append(f"| `{gate}` | {text.used} | {text.holds} | {sentences} | {text.release} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
