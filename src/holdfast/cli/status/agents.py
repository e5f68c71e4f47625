"""The agents' part of `holdfast status`: what they keep, and what is wrong with what they keep it for. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.agent.report.summary import UNREGISTERED, AgentDetails
from holdfast.cli.status.problem import Problem

_STARTING_S = 60.0
"""So long a source may take for its first list before somebody has to look."""
_DISPUTES = 3


def agent_problems(agent: AgentDetails) -> Iterator[Problem]:
    look = f"holdfast explain host {agent.host}"
    if agent.startup_error:
        yield Problem(
            agent.host, f"its agent cannot begin, what is programmed stays: {agent.startup_error}", look="its log"
        )
    for source in agent.sources:
        if source.revision is None:
            opens = f"holdfast source forget {source.name} --reason …"
            yield Problem(agent.host, source.sentence, look, opens, needs_you=source.since_s > _STARTING_S)
    if agent.registered is False:
        yield Problem(agent.host, UNREGISTERED, look, f"holdfast apply, with {agent.host} in the file")
    for sentence in agent.conflicts[:_DISPUTES]:
        yield Problem(agent.host, sentence, look)
    if len(agent.conflicts) > _DISPUTES:
        yield Problem(agent.host, f"and {len(agent.conflicts) - _DISPUTES:,} more conflicts", look)


def agent_lines(agents: Sequence[AgentDetails]) -> list[str]:
    """One line for all agents here; the first says whose they are."""
    if not agents:
        return []
    total = sum((Counter(agent.counts) for agent in agents), Counter[str]())
    who = agents[0].host if len(agents) == 1 else f"{len(agents):,} here"
    peers = f"   {total['peers']:,} peers" if len(agents) == 1 else ""
    pending = sum(agent.pending_deletes for agent in agents)
    states = "   ".join(f"{state} {total[state]:,}" for state in ("programmed", "held", "failed"))
    return ["", f"AGENT    {who}{peers}   objects: {states}   deletes pending {pending:,}"]
