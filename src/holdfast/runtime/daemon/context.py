"""Context: the clock, vitals, decision log and metrics that a worker process hands to its reconcilers.

A module of its own, so that a reconciler does not import the worker process around it.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.runtime.clock import Clock
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics


@dataclass(frozen=True, slots=True)
class Context:
    clock: Clock
    vitals: Vitals
    decisions: DecisionLog
    metrics: WorkerMetrics
