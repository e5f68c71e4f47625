"""Control-socket commands of the agent: `control` takes requests, the others build the answers."""
