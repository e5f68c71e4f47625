"""Write-ahead journal of the agent. Reading order: `frames`, `replay`, `journal`, `open`, `compaction`."""

from holdfast.agent.journal.journal import Journal

__all__ = ["Journal"]
