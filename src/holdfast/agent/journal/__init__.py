"""Write-ahead journal of the agent: read `frames`, `replay`, `journal`, `open`, `compaction`."""

from holdfast.agent.journal.journal import Journal

__all__ = ["Journal"]
