"""The SQL inventory. Read in this order: `schema`, `engine`, `fence`, `objects`, `observed`, `wake`."""
