"""Control commands of the agent: `control` answers, `views` and `trace_route` compute the answers."""
