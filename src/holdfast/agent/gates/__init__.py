"""Gates of the agent: each module decides whether one kind of change may be applied yet."""
