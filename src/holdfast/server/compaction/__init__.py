"""Compaction of the store's history: `policy` decides, `compactor` acts."""
