"""Reports of the agent to the store. Reading order: `schedule`, `summary`, `reporting_host`, `reporter`,
`endpoint_states`, `endpoints`."""
