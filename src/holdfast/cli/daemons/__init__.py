"""Commands that run a daemon, and show what only that daemon knows."""
