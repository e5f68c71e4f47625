"""Desired state of this host. Reading order: `watcher`, `source_claims`, `ownership`, `migrations`,
`slim_endpoint`, `peers`, `sources`."""
