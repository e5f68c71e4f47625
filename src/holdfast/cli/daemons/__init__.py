"""Commands that run a daemon."""
