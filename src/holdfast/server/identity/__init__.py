"""Identity of the fleet on a server: do inventory and store belong together, and what may be written."""
