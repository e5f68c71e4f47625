"""The node agent: keeps this host's kernel in step with the fleet, and never forgets what it put there."""
