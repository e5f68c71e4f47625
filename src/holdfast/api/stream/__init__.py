"""Event stream: `replay` keeps what a client may have missed, `feed` produces it."""
