"""Checks of the store's identity: the judgement of each role on this machine, and what to do about it.

The judgement is the daemons' own: their memory is recalled before the store is asked (C49), and the histories are
compared. Nothing is remembered: the files are the daemons'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.cli.doctor import Finding, Severity
from holdfast.inventory.kinds import KINDS
from holdfast.model.base.region import Region
from holdfast.runtime.store_memory import MemoryUnreadable, StoreMemory
from holdfast.store.api import Store
from holdfast.store.identity import (
    ADOPT,
    Judgement,
    SeenStore,
    StoreVerdict,
    classify_store,
    has_diverged,
    read_identity,
)

_ROLES = ("server", "agent", "balancer")
_SEVERITIES: Mapping[StoreVerdict, Severity] = {
    StoreVerdict.OURS: Severity.GOOD,
    StoreVerdict.FILLING: Severity.NOTE,
}
_ADVICE: Mapping[StoreVerdict, str] = {
    StoreVerdict.RESTORED: (
        "The leader refills the store by itself; holdfast resync does it now and deletes nothing. "
        f"Check what is left with holdfast diff inventory. To release: {ADOPT}"
    ),
    StoreVerdict.UNNAMED: (
        "holdfast diff inventory shows what would change; holdfast import takes over what the store holds. "
        f"To release: {ADOPT}"
    ),
    StoreVerdict.INVENTORY_RESTORED: (
        "holdfast diff inventory shows what differs. "
        "To release: holdfast inventory adopt --keep store|inventory --reason WHY"
    ),
    StoreVerdict.FILLING: "Nothing is to be done",
}


async def examine(store: Store, region: Region, state: Path) -> Sequence[Finding]:
    """Judge the store for each role that has recorded a store identity on this machine."""
    remembered, findings = _recall(state)
    found = await read_identity(store, region)
    judgements: list[Judgement] = []
    for seen in remembered:
        diverged = found.revision >= seen.trace and await has_diverged(store, region, seen)
        judgements.append(classify_store(seen, found, diverged=diverged))
    if not remembered and not findings:
        judgements.append(classify_store(None, found))
    return findings + [await _finding(store, region, one) for one in dict.fromkeys(judgements)]


def _recall(state: Path) -> tuple[list[SeenStore], list[Finding]]:
    """Recall the store of each role; a memory that cannot be read is a finding."""
    remembered: list[SeenStore] = []
    findings: list[Finding] = []
    for role in _ROLES:
        try:
            seen = StoreMemory(state, role).load()
        except MemoryUnreadable as unreadable:
            findings.append(Finding(Severity.WRONG, "identity", str(unreadable)))
        else:
            remembered += [seen] if seen is not None else []
    return remembered, findings


async def _finding(store: Store, region: Region, one: Judgement) -> Finding:
    if one.verdict is StoreVerdict.UNNAMED:
        if await _is_empty(store, region):
            return Finding(Severity.NOTE, "identity", one.sentence)
        sentence = "the store has no identity but holds objects, so nothing is written: another program may own them"
        return Finding(Severity.WRONG, "identity", f"{one.verdict.value}: {sentence}. {_ADVICE[one.verdict]}")
    severity, advice = _SEVERITIES.get(one.verdict, Severity.WRONG), _ADVICE.get(one.verdict, "")
    verdict = f"{one.verdict.value}: " if severity is Severity.WRONG else ""
    return Finding(severity, "identity", f"{verdict}{one.sentence}" + (f". {advice}" if advice else ""))


async def _is_empty(store: Store, region: Region) -> bool:
    """True if there is no key under the prefixes that a leader writes."""
    for kind in KINDS:
        async for page in store.list(kind.prefix(region), page=1, keys_only=True):
            if page.entries:
                return False
            break
    return True
