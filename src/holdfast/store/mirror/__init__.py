"""Mirror: prefixes of the store in memory, complete and in order."""
