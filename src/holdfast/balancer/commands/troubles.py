"""Troubles of frontends: which do not serve, or serve without all of their backends, each with the last probe error.

Shown by `holdfast status` and `holdfast doctor`. A frontend without a serving backend needs action; one that serves
without some of its backends is handled already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.balancer.gates import HealthReason
from holdfast.balancer.health import HealthState
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.warm_up import WarmUpPhase
from holdfast.model.base.time import Instant

_NAMED = 3
"""Backends that one sentence names."""
_BY_OPERATOR = (HealthState.PAUSED, HealthState.DISABLED)


class FrontendTrouble(msgspec.Struct, frozen=True):
    """One trouble, as a sentence about a frontend or about all of them."""

    subject: str
    sentence: str
    inspect: str
    needs_action: bool


def troubles(reconciler: VipReconciler, now: Instant) -> Sequence[FrontendTrouble]:
    """Return the troubles at `now`, in the order of the frontends."""
    frontends = reconciler.balancer.services.frontends.values()
    found = [one for frontend in frontends for one in _of_frontend(reconciler, frontend, now)]
    health = reconciler.health
    if health.silent_since is not None and health.reason is HealthReason.NO_ROUTE:
        names = [name for name, errors in reconciler.balancer.probe_errors.items() if errors]
        sentence = f"{health.reason.value}; what is programmed stays: {_named(reconciler, names)}"
        found.insert(0, FrontendTrouble("probes", sentence, "holdfast doctor", needs_action=True))
    return found


def _of_frontend(reconciler: VipReconciler, frontend: ResolvedFrontend, now: Instant) -> Iterator[FrontendTrouble]:
    balancer, inspect = reconciler.balancer, f"holdfast explain frontend {frontend.name}"
    names = list(frontend.backends())
    states = {name: balancer.health[name].state for name in names}
    serving = balancer.desired(frontend, now).serving
    failing = [name for name in names if states[name] in (HealthState.DOWN, HealthState.UNKNOWN)]
    if serving.state is HealthState.UNKNOWN or not names:
        if balancer.warm.phase(now) is WarmUpPhase.OVER:
            sentence = f"nothing is known of its backends; what is programmed stays: {_named(reconciler, failing)}"
            yield FrontendTrouble(frontend.name, sentence, inspect, needs_action=True)
    elif serving.state is HealthState.DOWN:
        by_operator = all(state in _BY_OPERATOR for state in states.values())
        why = "an operator holds all of them" if by_operator else _named(reconciler, failing)
        yield FrontendTrouble(frontend.name, f"no backend serves: {why}", inspect, needs_action=not by_operator)
    elif serving.panic:
        sentence = f"panic: all its backends serve, healthy or not: {_named(reconciler, failing)}"
        yield FrontendTrouble(frontend.name, sentence, inspect, needs_action=True)
    elif down := [name for name in failing if states[name] is HealthState.DOWN]:
        sentence = f"{len(down)} of {len(names)} backends down, the others serve: {_named(reconciler, down)}"
        yield FrontendTrouble(frontend.name, sentence, inspect, needs_action=False)


def _named(reconciler: VipReconciler, names: Sequence[str]) -> str:
    """Name some backends, each with its state and the last probe error."""
    balancer = reconciler.balancer
    shown = []
    for name in names[:_NAMED]:
        health = balancer.health[name]
        error = "; ".join(balancer.probe_errors.get(name, {}).values()) or health.why
        shown.append(f"{name} {health.state.value} ({error})")
    more = len(names) - _NAMED
    return ", ".join(shown) + (f", and {more:,} more" if more > 0 else "")
