"""Operator intents of a running worker: stored by `book`, accepted by `commands`."""
