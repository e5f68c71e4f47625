"""Syncer: the inventory into the store. Read `term`, `source`, `outbox`, `target`, then `gates`."""
