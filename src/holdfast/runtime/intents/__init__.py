"""Operator intents of a running worker: `file` stores them, `commands` accepts and applies them."""
