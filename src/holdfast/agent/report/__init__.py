"""Reports of the agent to the store. Reading order: `schedule`, `summary`, `reporter`, `endpoint_states`,
`endpoints`."""
