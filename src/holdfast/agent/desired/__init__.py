"""Desired state of this host. Reading order: `watcher`, `source_claims`, `ownership`, `migrations`, `peers`,
`sources`."""
