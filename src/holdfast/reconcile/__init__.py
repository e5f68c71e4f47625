"""The reconcile core, without IO: diff desired against actual state, gate each change, plan, keep what is outstanding.

    watch ──► diff ──► gate ──► apply

Read in this order: `change` (the vocabulary), `diff`, `gate` (gates and the plan), `sync`, `brake`, `pause` (three
gates), `ledger` (outstanding changes and retries). `holdfast.runtime.reconciler.loop` is the one loop that drives it.
"""

from holdfast.reconcile.brake import Brake, BrakeLimits, BrakeReason
from holdfast.reconcile.change import Away, Change, Kept, Op, Outcome, Owned, alike
from holdfast.reconcile.diff import OutOfOrder, changed, diff
from holdfast.reconcile.gate import Closed, Gate, Kinds, Plan, Reason, one_kind, plan, plan_in_steps
from holdfast.reconcile.ledger import BACKOFF, Backoff, Ledger, Outstanding, RetryReason
from holdfast.reconcile.pause import Pause, PauseGate, PauseReason
from holdfast.reconcile.sync import Synced, SyncGate, SyncReason

__all__ = [
    "BACKOFF",
    "Away",
    "Backoff",
    "Brake",
    "BrakeLimits",
    "BrakeReason",
    "Change",
    "Closed",
    "Gate",
    "Kept",
    "Kinds",
    "Ledger",
    "Op",
    "OutOfOrder",
    "Outcome",
    "Outstanding",
    "Owned",
    "Pause",
    "PauseGate",
    "PauseReason",
    "Plan",
    "Reason",
    "RetryReason",
    "SyncGate",
    "SyncReason",
    "Synced",
    "alike",
    "changed",
    "diff",
    "one_kind",
    "plan",
    "plan_in_steps",
]
