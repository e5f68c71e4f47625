"""Operator intents of the servers, kept in the store."""
