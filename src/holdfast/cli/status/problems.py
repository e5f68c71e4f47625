"""Problems that `holdfast status` shows: derived from the daemons' answers, each with its next command. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from holdfast.agent.report.summary import UNREGISTERED, AgentDetails
from holdfast.cli.common.format import clock, counted, short
from holdfast.cli.common.terms import TermOnBoard, stale_term
from holdfast.cli.status import observed
from holdfast.cli.status.verdicts import fold
from holdfast.cli.status.view import BLOCKED_S, Problem, StatusView
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport
from holdfast.server.election.views import ElectorView

_LONG_WAIT_S = 60.0
"""A wait above this needs action: a dependency that recovers by itself is back by then."""
_STARTING_S = 60.0
"""A source may take this long for its first list."""
_CONFLICTS = 3
_WAITING = "waiting"
_WAITERS = 4
"""Workers that are named of those that wait for the same."""
LAB = "lab"
"""Role of the daemon that runs a demo fleet; its workers are other daemons."""
_OPEN_BY_THEMSELVES = ("warm_up",)
"""Gates that are closed after every start."""


def problems(view: StatusView) -> list[Problem]:
    """Return all problems, those that need action first."""
    found = [_gone(one) if one.role in view.gone else _silent(one) for one in view.reports if one.role in view.silent]
    found += [_stale(daemon, term) for daemon, term in view.terms.items()]
    found += [*_not_started(view), *_without_answer(view)]
    if view.servers and not any(server.leader for server in view.servers):
        sentence = "no leader: nothing is written until a server is elected"
        found.append(Problem("leader", sentence, inspect="holdfast leader"))
    verdicts = fold(view)
    found += verdicts.problems
    for server in view.servers:
        found += _not_a_candidate(server)
    found += [*_store_errors(view), *_members_away(view), *_waits(view), *_pauses(view)]
    for agent in view.agents:
        found += agent_problems(agent)
    found += [_refused(one) for one in view.reports if one.config_refused]
    for one in view.reports:
        for worker in one.workers:
            all_held = view.held.get(f"{one.role}/{worker.name}", [])
            held = _without_pauses(view, verdicts.others(all_held))
            found += [*_worker_problems(worker, held), *_paused_by_nobody(view, worker)]
            if worker.state.startswith("held") and not (all_held or verdicts.problems):
                found.append(_held_without_objects(worker))
    found += [
        Problem(one.subject, one.sentence, inspect=one.inspect, needs_action=one.needs_action) for one in view.troubles
    ]
    if view.pruning_fails:
        sentence = f"old history of the inventory is not pruned, and grows: {view.pruning_fails}; retrying every minute"
        found.append(Problem("syncer", sentence, inspect="holdfast history history"))
    found += [
        Problem(subject, sentence, inspect=command) for subject, sentence, command in observed.problems(view.seen)
    ]
    found += [
        Problem(name, "the new leader has not compared all reports yet", needs_action=False, known=False)
        for name, summary in view.seen.items()
        if not observed.is_compared(summary)
    ]
    return sorted(found, key=lambda problem: not problem.needs_action)


def _not_started(view: StatusView) -> Iterator[Problem]:
    """Yield the daemons that a lab is to run and that have no control socket yet."""
    known = {one.role for one in view.reports}
    for lab in (one for one in view.reports if one.role == LAB):
        daemons = [one.name for one in lab.workers if one.name.startswith(("ctl-", "lb-"))]
        for name in daemons:
            if name not in known:
                yield Problem(name, "starting: its daemon has no control socket yet", needs_action=False, known=False)


def _without_answer(view: StatusView) -> Iterator[Problem]:
    """Yield the workers that live and are silent; their supervisor restarts one that stays so."""
    for one in view.reports:
        if one.role in view.silent:
            continue
        for worker in one.workers:
            if worker.pid is not None and (worker.pulse_s or 0.0) > BLOCKED_S and worker.phase == "running":
                sentence = f"{one.role}: no pulse for {short(worker.pulse_s or 0.0)}; it is restarted if that goes on"
                yield Problem(worker.name, sentence, needs_action=False, known=False)
    for name, error in view.unanswered.items():
        yield Problem(name.rpartition("/")[2], f"{name} does not answer: {error}", needs_action=False, known=False)


def _not_a_candidate(server: ElectorView) -> Iterator[Problem]:
    if server.refused:
        yield Problem(server.name, f"not a candidate for leader: {server.refused}", inspect="holdfast doctor")
    if server.paused:
        has_end = " until " in server.paused.partition(": “")[0]
        sentence = f"not a candidate for leader: paused by {server.paused}{'' if has_end else '; it has no end'}"
        yield Problem(server.name, sentence, release=f"holdfast resume server {server.name}", needs_action=not has_end)


def _store_errors(view: StatusView) -> Iterator[Problem]:
    """Yield one problem for each error of the store, however many servers see it."""
    errors: dict[str, list[str]] = {}
    for server in view.servers:
        if server.store is None and server.store_error:
            errors.setdefault(server.store_error, []).append(server.name)
    for error, names in errors.items():
        sentence = f"does not answer {', '.join(names)}: {error}; programmed state stays"
        yield Problem("store", sentence, inspect="holdfast doctor", needs_action=False, known=False)


def _waits(view: StatusView) -> Iterator[Problem]:
    """Yield one problem for each dependency that is away, however many workers wait for it."""
    waits: dict[str, list[tuple[str, WorkerReport]]] = {}
    for one in view.reports:
        for worker in one.workers:
            if worker.state.startswith(_WAITING):
                waits.setdefault(worker.state, []).append((f"{one.role}/{worker.name}", worker))
    for state, workers in waits.items():
        longest = max(worker.waiting_s or 0.0 for _, worker in workers)
        is_long = longest > _LONG_WAIT_S
        if len(workers) == 1:
            subject, sentence = workers[0][1].name, state + (f" (for {clock(longest)})" if longest else "")
        else:
            names = ", ".join(name for name, _ in workers[:_WAITERS]) + (", …" if len(workers) > _WAITERS else "")
            subject = state.removeprefix(_WAITING).lstrip(": ")
            sentence = f"{len(workers):,} workers wait for it for up to {clock(longest)}: {names}"
        yield Problem(
            subject,
            f"{sentence}; programmed state stays",
            inspect="holdfast doctor" if is_long else "",
            needs_action=is_long,
            known=False,
        )


def _members_away(view: StatusView) -> Iterator[Problem]:
    """Yield the members of etcd that do not answer, as the first server here sees them: writes go on."""
    store = next((server.store for server in view.servers if server.store is not None), None)
    if store is None or store.answering >= store.members:
        return
    away, spare = store.members - store.answering, store.answering - (store.members // 2 + 1)
    sentence = f"{away} of {counted(store.members, 'member')} of etcd {'does' if away == 1 else 'do'} not answer"
    left = f"if {counted(spare + 1, 'more member')} {'is' if spare == 0 else 'are'} lost, " if spare >= 0 else ""
    yield Problem("store", f"{sentence}; {left}nothing can be written", inspect="holdfast doctor")


def pauses(view: StatusView) -> list[Intent]:
    """Pauses in force, but those of servers: a paused server is a problem of its elector."""
    return [one for one in view.intents if one.what is IntentKind.PAUSE and one.scope.target is not ScopeKind.SERVER]


def _without_pauses(view: StatusView, held: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what a pause holds that is shown as a problem of its own."""
    shown = {f"holdfast resume {one.scope}" for one in pauses(view)}
    return [one for one in held if one["gate"] != "intent" or one["opens"].partition(",")[0] not in shown]


def _pauses(view: StatusView) -> Iterator[Problem]:
    """Yield one problem for each pause; one without an end needs action."""
    waiting = Counter(
        one["opens"].partition(",")[0] for held in view.held.values() for one in held if one["gate"] == "intent"
    )
    for one in pauses(view):
        resume = f"holdfast resume {one.scope}"
        many = f"{waiting[resume]:,} changes wait" if waiting[resume] > 1 else "1 change waits"
        count = f"; {many}" if waiting[resume] else ""
        ends = "" if one.until else "; it has no end"
        yield Problem(
            str(one.scope), f"paused by {one.sentence}{count}{ends}", release=resume, needs_action=one.until is None
        )
    if any(one.scope == FLEET for one in view.intents):
        for name in view.unreached:
            sentence = "serves from a file, so the pause of the fleet does not reach it"
            yield Problem(name, sentence, fix="holdfast pause worker vips --reason …", needs_action=False)


def _paused_by_nobody(view: StatusView, worker: WorkerReport) -> Iterator[Problem]:
    """Yield a worker that says "paused" and did not answer with the pause: its end is unknown."""
    if worker.state.startswith("paused") and not any(_explains(one, worker) for one in pauses(view)):
        sentence = "paused, and it does not answer by whom and until when"
        yield Problem(worker.name, sentence, inspect=f"holdfast plan {worker.name}", needs_action=False, known=False)


def _held_without_objects(worker: WorkerReport) -> Problem:
    """A worker that says "held" and names nothing: what it held is being applied just now, or it cannot answer."""
    sentence = f"{worker.state}; it does not say what it holds, so that it may be over just now"
    return Problem(worker.name, sentence, f"holdfast plan {worker.name}", needs_action=False, known=False)


def _explains(one: Intent, worker: WorkerReport) -> bool:
    """Return whether that pause is of the whole worker. One of a frontend or a backend never is."""
    wide = one.scope.target in (ScopeKind.FLEET, ScopeKind.HOST)
    return wide or one.scope == Scope(ScopeKind.WORKER, worker.name)


def _gone(one: DaemonReport) -> Problem:
    sentence = f"the supervisor (pid {one.supervisor_pid}) died, and its workers with it; programmed state stays"
    return Problem(one.role, sentence, inspect="its log", fix="start the daemon again")


def _silent(one: DaemonReport) -> Problem:
    pulse = "never seen" if one.supervisor_pulse_s is None else f"last pulse {short(one.supervisor_pulse_s)} ago"
    sentence = f"the supervisor (pid {one.supervisor_pid}) does not answer, {pulse}; its workers exit without it"
    return Problem(one.role, sentence, inspect=f"ps -o pid,stat,wchan:20,cmd -p {one.supervisor_pid}")


def _refused(one: DaemonReport) -> Problem:
    """A daemon that was to reload a configuration with errors: a restart would fail on them."""
    first, *others = one.config_refused.splitlines()
    more = f", and {len(others):,} more errors" if len(others) > 1 else ", and another error" if others else ""
    sentence = f"the configuration was refused on reload, the running one stays: {first}{more}"
    return Problem(one.role, sentence, inspect="holdfast config check", fix="correct it, then: holdfast config reload")


def _stale(daemon: str, term: TermOnBoard) -> Problem:
    """A term that the board still shows while its elector does not answer; the supervisor restarts a hung one."""
    state = f"term {term.term} holds for another {short(-term.stale_s)}"
    if term.stale_s >= 0:
        state = f"{stale_term(term.term, term.stale_s, 'is stale for')}: it writes nothing"
    sentence = f"the elector does not answer; {state}"
    return Problem(daemon, sentence, inspect="holdfast leader", needs_action=False, known=False)


def agent_problems(agent: AgentDetails) -> Iterator[Problem]:
    explain = f"holdfast explain host {agent.host}"
    if agent.startup_error:
        yield Problem(
            agent.host, f"the agent cannot start; programmed state stays: {agent.startup_error}", inspect="its log"
        )
    for source in agent.sources:
        if source.revision is None:
            forget = f"holdfast source forget {source.name} --reason …"
            is_late = source.since_s > _STARTING_S
            # Forgetting a source is risky while it may still be sending its first list.
            release = forget if is_late else ""
            yield Problem(agent.host, source.sentence, explain, release=release, needs_action=is_late, known=False)
    if agent.registered is False:
        yield Problem(agent.host, UNREGISTERED, explain, fix=f"holdfast apply, with {agent.host} in the file")
    conflicts = () if agent.store_refusals else agent.conflicts  # the problem of the verdict counts those
    for sentence in conflicts[:_CONFLICTS]:
        yield Problem(agent.host, sentence, explain)
    if len(conflicts) > _CONFLICTS:
        yield Problem(agent.host, f"and {len(conflicts) - _CONFLICTS:,} more conflicts", explain)


def _worker_problems(worker: WorkerReport, held: list[dict[str, Any]]) -> Iterator[Problem]:
    name = worker.name
    if worker.crash_looping:
        last = f"last failure: {worker.trouble} ({worker.evidence})"
        sentence = f"crash-looping, {worker.restarts} restarts in 24 h; {last}"
        yield Problem(name, sentence, inspect=f"holdfast history worker/{name}")
    elif worker.phase in ("due", "ending", "killed") and worker.trouble:
        sentence = f"{worker.trouble} ({worker.evidence}); it is being restarted"
        yield Problem(name, sentence, needs_action=False, known=False)
    elif worker.state in ("starting", "due"):
        yield Problem(name, "starting", needs_action=False, known=False)
    if worker.state.startswith("refused"):
        yield Problem(name, worker.state, inspect="holdfast doctor")
    if worker.state.startswith("failing"):
        yield Problem(name, f"objects {worker.state}", inspect=f"holdfast plan {name}")
    if worker.verdict == "overdue":
        sentence = "no full comparison finished within three intervals"
        yield Problem(name, sentence, inspect=f"holdfast plan {name}")
    yield from _held(name, held)


def _held(name: str, held: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yield one problem per gate and reason, with the longest wait."""
    groups: dict[tuple[str, str, str, str], float] = {}
    for one in held:
        if one["gate"]:
            also = f"; {one['also']}" if one.get("also") else ""
            key = one["gate"], f"{one['reason']}{also}", one["opens"], one.get("look", f"holdfast plan {name}")
            groups[key] = max(groups.get(key, 0.0), one["since_s"])
    for (gate, reason, opens, inspect), since in groups.items():
        sentence = f"held by {gate} for {clock(since)}: {reason}"
        by_itself = gate in _OPEN_BY_THEMSELVES
        yield Problem(name, sentence, inspect, opens, needs_action=not by_itself, known=not by_itself)
