"""SQL inventory: read `schema`, `engine`, `fence`, `objects`, `observed`, `wake`."""
