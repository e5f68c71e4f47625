"""Operator intents of a running worker: `book` stores them, `commands` accepts and applies them."""
