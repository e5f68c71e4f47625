"""Context of a reconciling part: the clock, vitals, decision log and metrics of the worker process it runs in."""

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
