"""Syncer: the inventory into the store. Read `term`, `source`, `target`, then the gates."""
