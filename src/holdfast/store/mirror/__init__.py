"""Mirror: a prefix of the store in memory, complete and in order."""
