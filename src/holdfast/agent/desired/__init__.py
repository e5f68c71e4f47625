"""Desired state of this host: read `watcher`, `source_claims`, `ownership`, `migrations`."""
